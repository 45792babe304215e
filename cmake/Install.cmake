# What `cmake --install` puts where, by component. A model's package brings its own runtime; the libraries are for programs
# that tune or that add operators.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS temper temper-server temper-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
# For machines that run packages for GPUs; nothing links it.
install(TARGETS temper_devices LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devices NAMELINK_SKIP)
install(FILES include/temper/model.h include/temper/model.hpp include/temper/operator.h include/temper/tuning.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/temper COMPONENT headers)
# `make build` leaves the libraries out, and so does its install.
install(TARGETS temper_tuning_client temper_operators LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libraries OPTIONAL)
# What operator.h includes, in a folder of its own.
foreach(header base/dtype.h base/ndarray.h base/rng.h base/status.h compiler/ir/expr.h compiler/ir/stmt.h compiler/ir/te.h
               compiler/ops/attrs.h compiler/ops/footprint.h compiler/ops/op.h compiler/ops/template.h
               compiler/ops/templates/cpu_footprint.h compiler/ops/templates/cpu_template.h compiler/ops/workload.h
               compiler/package/try_operator.h compiler/schedule/config_space.h compiler/schedule/lower.h
               compiler/schedule/schedule.h compiler/target/target.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/temper/operators/${folder} COMPONENT headers)
endforeach()

set(TEMPER_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Temper)
configure_package_config_file(cmake/package/TemperConfig.cmake.in ${CMAKE_BINARY_DIR}/package/TemperConfig.cmake
  INSTALL_DESTINATION ${TEMPER_CMAKE_DIR} PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/TemperConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/TemperConfig.cmake ${CMAKE_BINARY_DIR}/package/TemperConfigVersion.cmake
  cmake/package/TemperModels.cmake
  DESTINATION ${TEMPER_CMAKE_DIR} COMPONENT cmake)

# Its prefix is where it lies, so that the tree may be installed anywhere and moved.
file(RELATIVE_PATH TEMPER_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/package/temper.pc.in ${CMAKE_BINARY_DIR}/package/temper.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/temper.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cmake)

# `cpack -G DEB` in the build folder: one package of all components, which needs what deploy/packages.txt says of `run`.
file(STRINGS deploy/packages.txt TEMPER_RUN_PACKAGES REGEX "^[a-z0-9.+-]+ +run$")
list(TRANSFORM TEMPER_RUN_PACKAGES REPLACE " +run$" "")
list(JOIN TEMPER_RUN_PACKAGES ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The authors of Temper")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Tunes neural networks for the machine at hand, and compiles them")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)
