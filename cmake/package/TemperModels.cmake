# Models as library targets. Found by find_package(Temper); docs/builds.md has an example.
#
#   temper_add_model(TARGET name MODEL file.onnx [SHAPES x=1,3,224,224 ...] [DIMS n=1 ...] [VALUES y=true ...]
#                    [LOCK file | DB file | SERVER address [CA file] [TOKEN_FILE file]] [DEVICE key] [FOR target]
#                    [MIN_COVERAGE 0.9] [REPORT file] [DEPENDS file ...])
#
# Makes the shared library target `name`, which others link. Its functions are name_create, name_run, ..., declared in
# <name/model.h>, so `name` is a C identifier in lower case. name_create(NULL, ...) finds the weights beside the library.
# Without LOCK, DB and SERVER the default configs are used, so that a build never depends on what a user's own database
# holds. It is built again when the model, the lock, a file of DEPENDS (weights that lie beside the model) or temper
# itself changes. With DB or SERVER every build first makes a lock of the records as they are now, the target name_lock;
# only where that lock is another one than before is the model built again. TOKEN_FILE is the file's name: the token
# itself never comes near CMake's cache.
#
#   temper_install_model(TARGET name [DESTINATION folder] [FOR program ...] [COMPONENT component])
#
# Installs the library, its weights and its manifest into a folder of their own, lib/name, and lets the programs, which
# are installed into bin, find it there by $ORIGIN, wherever the tree is moved.

include_guard(GLOBAL)
include(GNUInstallDirs)

# What a call was given besides its keywords and their values, and which of its keywords have none.
function(_temper_refuse rest without_value)
  if(rest)
    message(FATAL_ERROR "temper: what is '${rest}'?")
  endif()
  if(without_value)
    message(FATAL_ERROR "temper: '${without_value}' is given without a value")
  endif()
endfunction()

# Paths as the caller's folder has them.
function(_temper_absolute variable path)
  cmake_path(ABSOLUTE_PATH path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
  set(${variable} ${path} PARENT_SCOPE)
endfunction()

# Appends `option value` to the caller's list for each pair `argument option` whose argument temper_add_model was given.
macro(_temper_append_given list)
  set(pairs ${ARGN})
  while(pairs)
    list(POP_FRONT pairs argument option)
    if(M_${argument})
      list(APPEND ${list} ${option} ${M_${argument}})
    endif()
  endwhile()
endmacro()

function(temper_add_model)
  cmake_parse_arguments(PARSE_ARGV 0 M "" "TARGET;MODEL;LOCK;DB;SERVER;CA;TOKEN_FILE;DEVICE;FOR;MIN_COVERAGE;REPORT"
                        "SHAPES;DIMS;VALUES;DEPENDS")
  _temper_refuse("${M_UNPARSED_ARGUMENTS}" "${M_KEYWORDS_MISSING_VALUES}")
  if(NOT M_TARGET MATCHES "^[a-z_][a-z0-9_]*$" OR NOT M_MODEL)
    message(FATAL_ERROR "temper_add_model: give TARGET, a C identifier in lower case, and MODEL")
  endif()
  # LOCK "${lock}" with a variable that is not set must not become a build without a lock.
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE ${last})
    if("${ARGV${i}}" STREQUAL "")
      message(FATAL_ERROR "temper_add_model(TARGET ${M_TARGET}): an argument is empty")
    endif()
  endforeach()
  set(sources 0)
  foreach(source LOCK DB SERVER)
    if(M_${source})
      math(EXPR sources "${sources} + 1")
    endif()
  endforeach()
  if(sources GREATER 1)
    message(FATAL_ERROR "temper_add_model(TARGET ${M_TARGET}): give one of LOCK, DB and SERVER")
  endif()
  if(M_DEVICE AND sources EQUAL 0)
    message(FATAL_ERROR "temper_add_model(TARGET ${M_TARGET}): DEVICE is of a LOCK, a DB or a SERVER")
  endif()
  if((M_CA OR M_TOKEN_FILE) AND NOT M_SERVER)
    message(FATAL_ERROR "temper_add_model(TARGET ${M_TARGET}): CA and TOKEN_FILE are of a SERVER")
  endif()

  _temper_absolute(model ${M_MODEL})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/temper/${M_TARGET})
  set(package ${folder}/${M_TARGET})
  set(library ${package}/lib${M_TARGET}.so)
  set(outputs ${library} ${package}/weights.bin ${package}/model.h ${package}/manifest.json)
  set(command compile ${model} --prefix ${M_TARGET} -o ${package})
  set(depends ${model})
  set(shapes "")
  foreach(option shape dim value)
    string(TOUPPER ${option}s what)
    set(given ${M_${what}})
    list(TRANSFORM given PREPEND "--${option};")
    list(APPEND shapes ${given})
  endforeach()
  foreach(file LOCK DB CA TOKEN_FILE)
    if(M_${file})
      _temper_absolute(M_${file} ${M_${file}})
    endif()
  endforeach()
  foreach(file IN LISTS M_DEPENDS)
    _temper_absolute(file ${file})
    list(APPEND depends ${file})
  endforeach()
  get_target_property(temper Temper::temper IMPORTED_LOCATION)
  set(choice DEVICE --device FOR --target MIN_COVERAGE --min-coverage)
  if(M_DB OR M_SERVER)
    # Who changes records changes no file that a build tool could watch, so the records are asked in every build.
    set(M_LOCK ${folder}/${M_TARGET}.lock)
    set(new ${M_LOCK}.new)
    set(ask lock ${model} ${shapes} -o ${new})
    _temper_append_given(ask DB --db SERVER --server CA --ca TOKEN_FILE --token-file ${choice})
    add_custom_target(${M_TARGET}_lock COMMAND ${CMAKE_COMMAND} -E rm -f ${new} COMMAND ${temper} ${ask}
      COMMAND ${CMAKE_COMMAND} -E copy_if_different ${new} ${M_LOCK} BYPRODUCTS ${M_LOCK} DEPENDS ${model}
      COMMENT "Asking for the best configs of ${M_TARGET}" VERBATIM)
    list(APPEND command --lock ${M_LOCK})
  elseif(M_LOCK)
    list(APPEND command ${shapes})
    _temper_append_given(command LOCK --lock ${choice})
  else()
    list(APPEND command ${shapes} --untuned)
    _temper_append_given(command ${choice})
  endif()
  list(APPEND depends ${M_LOCK})
  if(M_REPORT)
    cmake_path(ABSOLUTE_PATH M_REPORT BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    list(APPEND command --report ${M_REPORT})
    list(APPEND outputs ${M_REPORT})
  endif()

  add_custom_command(OUTPUT ${outputs} COMMAND ${temper} ${command} DEPENDS ${depends} ${temper}
    COMMENT "Compiling ${M_TARGET} from ${M_MODEL}" VERBATIM)
  add_custom_target(${M_TARGET}_package DEPENDS ${outputs})
  if(TARGET ${M_TARGET}_lock)
    add_dependencies(${M_TARGET}_package ${M_TARGET}_lock)
  endif()
  file(MAKE_DIRECTORY ${package})  # as an include folder it is there before anything is built
  add_library(${M_TARGET} SHARED IMPORTED GLOBAL)
  set_target_properties(${M_TARGET} PROPERTIES IMPORTED_LOCATION ${library} IMPORTED_SONAME lib${M_TARGET}.so
    INTERFACE_INCLUDE_DIRECTORIES ${folder} INTERFACE_LINK_LIBRARIES Temper::headers)
  add_dependencies(${M_TARGET} ${M_TARGET}_package)
endfunction()

function(temper_install_model)
  cmake_parse_arguments(PARSE_ARGV 0 M "" "TARGET;DESTINATION;COMPONENT" "FOR")
  _temper_refuse("${M_UNPARSED_ARGUMENTS}" "${M_KEYWORDS_MISSING_VALUES}")
  if(NOT TARGET "${M_TARGET}")
    message(FATAL_ERROR "temper_install_model: '${M_TARGET}' is no target of temper_add_model")
  endif()
  if(NOT M_DESTINATION)
    set(M_DESTINATION ${CMAKE_INSTALL_LIBDIR}/${M_TARGET})
  endif()
  if(NOT M_COMPONENT)
    set(M_COMPONENT Unspecified)
  endif()
  get_target_property(library ${M_TARGET} IMPORTED_LOCATION)
  cmake_path(GET library PARENT_PATH package)
  install(FILES ${library} ${package}/weights.bin ${package}/manifest.json DESTINATION ${M_DESTINATION}
    COMPONENT ${M_COMPONENT})
  foreach(program IN LISTS M_FOR)
    file(RELATIVE_PATH up /${CMAKE_INSTALL_BINDIR} /${M_DESTINATION})
    set_property(TARGET ${program} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/${up}")
  endforeach()
endfunction()
