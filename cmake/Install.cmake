# What `cmake --install` puts where, by component. Packages bring their own runtime: there is no library to install.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS temper temper-server temper-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
install(FILES include/temper/model.h include/temper/model.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/temper COMPONENT headers)

set(TEMPER_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Temper)
configure_package_config_file(cmake/package/TemperConfig.cmake.in ${CMAKE_BINARY_DIR}/package/TemperConfig.cmake
  INSTALL_DESTINATION ${TEMPER_CMAKE_DIR} PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/TemperConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/TemperConfig.cmake ${CMAKE_BINARY_DIR}/package/TemperConfigVersion.cmake
  cmake/package/TemperModels.cmake
  DESTINATION ${TEMPER_CMAKE_DIR} COMPONENT cmake)

# Its prefix is where it lies, so that the tree may be installed anywhere and moved.
file(RELATIVE_PATH TEMPER_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/package/temper.pc.in ${CMAKE_BINARY_DIR}/package/temper.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/temper.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cmake)
