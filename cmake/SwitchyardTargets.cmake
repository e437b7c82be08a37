# How every target of the project is built: warnings are errors, sanitizers where asked for, one layer a folder.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(XXHASH REQUIRED libxxhash)  # its header alone is used
pkg_check_modules(HWLOC IMPORTED_TARGET hwloc)
pkg_check_modules(OFI libfabric)  # its headers; it is loaded when needed

add_library(switchyard_flags INTERFACE)
target_compile_options(switchyard_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wnull-dereference>
  # GCC 12 finds these two inside its own library when it optimises with -O3; they stay warnings.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=restrict -Wno-error=maybe-uninitialized>)
target_include_directories(switchyard_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(switchyard_flags INTERFACE Threads::Threads)
if(SWITCHYARD_CUDA)
  find_package(CUDAToolkit REQUIRED)
  target_compile_definitions(switchyard_flags INTERFACE SWITCHYARD_HAVE_CUDA)
  # Results are compared byte for byte with the host's: nothing may be fused that the source does not fuse.
  target_compile_options(switchyard_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Werror=all-warnings -Xcompiler=-Wall,-Wextra>)
endif()
if(SWITCHYARD_SANITIZE)
  target_compile_options(switchyard_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${SWITCHYARD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -Wno-tsan>)
  # Instrumented code makes GCC 12 see overflows and uninitialised values in the standard library that are not there.
  target_compile_options(switchyard_flags INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-restrict -Wno-maybe-uninitialized
    -Wno-null-dereference>)
  target_link_options(switchyard_flags INTERFACE -fsanitize=${SWITCHYARD_SANITIZE})
endif()

# A layer: one folder of src/, linked into libswitchyard. Sanitizer builds compile a few files at once: their headers are most of
# the work, and that every file compiles on its own is seen in the others.
function(switchyard_layer name)
  add_library(sy_${name} OBJECT ${ARGN})
  target_link_libraries(sy_${name} PUBLIC switchyard_flags)
  if(SWITCHYARD_SANITIZE)
    set_target_properties(sy_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

# Every test of this folder, however it was registered, says with its exit code that something was skipped (tests/support/run_tests.hpp).
function(switchyard_tests_may_skip)
  get_property(names DIRECTORY PROPERTY TESTS)
  foreach(name IN LISTS names)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
endfunction()

# A GoogleTest program, registered with ctest under its own name. switchyard_test(name sources... [LIBS ...] [TIMEOUT s])
function(switchyard_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "LIBS;LABELS" ${ARGN})
  add_executable(${name} ${T_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${SWITCHYARD_COMPILE_QUICKLY})
  target_link_libraries(${name} PRIVATE switchyard_flags switchyard_internal GTest::gtest GTest::gmock sy_test_main ${T_LIBS})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
  cmake_language(DEFER CALL switchyard_tests_may_skip)
endfunction()
