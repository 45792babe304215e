# How libraries and tests are declared, so that every CMakeLists.txt is a list of names.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(spdlog REQUIRED)

# A new value of an enum, such as an element type, is an error in each switch that leaves it out.
option(TEMPER_WERROR "Warnings are errors, as where changes are checked" OFF)
set(TEMPER_WARNINGS -Wall -Wextra -Werror=switch -Wno-unused-parameter -Wno-missing-field-initializers)
if(TEMPER_WERROR)
  list(APPEND TEMPER_WARNINGS -Werror)
endif()
# `make` sets it: several sources of a target are compiled as one, in half of the time. So names in anonymous namespaces
# differ within a target, but for sources that their CMakeLists.txt takes out.
if(CMAKE_UNITY_BUILD)
  list(APPEND TEMPER_WARNINGS $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # takes all but the first for headers
endif()

# Set by the preset tsan, which has the compiler's flags.
option(TEMPER_TSAN "Tell ThreadSanitizer what libraries that are not instrumented put in order" OFF)
if(TEMPER_TSAN)
  add_library(temper_tsan_grpc OBJECT ${CMAKE_SOURCE_DIR}/tests/tsan/grpc.cc)
endif()
# What every program of ours has beside its sources.
function(temper_program name)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${TEMPER_WARNINGS})
  if(TEMPER_TSAN)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:temper_tsan_grpc>)
  endif()
endfunction()

# temper_library(NAME SOURCES a.cc ... DEPS lib ... [PRIVATE_DEPS lib ...]): static, warnings on.
function(temper_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${TEMPER_WARNINGS})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# temper_shared_library(temper_NAME SOURCES ... DEPS ...): libtemper-NAME.so, for programs outside of the tree.
function(temper_shared_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  string(REPLACE _ - output ${name})
  add_library(${name} SHARED ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${TEMPER_WARNINGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${output} VERSION ${PROJECT_VERSION}
    SOVERSION ${TEMPER_SOVERSION} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
endfunction()

# temper_binary(NAME SOURCES ... DEPS ...): lands in build/bin.
function(temper_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  temper_program(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

set(TEMPER_TEST_OPTIMIZATION -O1 CACHE STRING "How tests are compiled, which wait for what they test and not for themselves")

# temper_test(NAME SOURCES ... DEPS ... LABELS unit|fuzz|golden|integration): a GoogleTest program. Each of its sources
# with tests, X_test.cc, is an entry of ctest and a process of its own: NAME.X, or NAME where there is one.
# Intent labels: unit (small, exact), fuzz (random against simple), golden (texts), integration (processes); sandboxed
# beside them where measuring children run under the sandbox's filter and limits, which ThreadSanitizer does not bear.
# The folder's name is a label too, and FOLDER_tests is the target that builds all tests of a folder.
function(temper_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  temper_program(${name})
  target_compile_definitions(${name} PRIVATE TEMPER_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TEMPER_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_compile_options(${name} PRIVATE ${TEMPER_TEST_OPTIMIZATION})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} temper_test_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(NOT TARGET ${folder}_tests)
    add_custom_target(${folder}_tests)
  endif()
  add_dependencies(${folder}_tests ${name})

  list(FILTER ARG_SOURCES INCLUDE REGEX "_test\\.cc$")
  list(LENGTH ARG_SOURCES count)
  foreach(source ${ARG_SOURCES})
    string(REGEX REPLACE "(.*/)?(.*)_test\\.cc$" "${name}.\\2" entry ${source})
    if(count EQUAL 1)
      set(entry ${name})
    endif()
    add_test(NAME ${entry} COMMAND ${name} --file=${source})
    set_tests_properties(${entry} PROPERTIES LABELS "${ARG_LABELS};${folder}" TIMEOUT 600)
  endforeach()
endfunction()
