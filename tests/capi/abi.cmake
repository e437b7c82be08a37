# nccl_ep.h must compile as strict C99, strict C11 and C++, against the host flavour of nccl.h and cuda.h, and against
# NVIDIA's own where they are installed.
find_path(SWITCHYARD_NVIDIA_NCCL_INCLUDE nccl.h PATHS /usr/local/cuda/include
  NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH)

function(switchyard_abi_test name nccl_include)
  foreach(standard 99 11)
    add_library(${name}_c${standard} OBJECT abi_c${standard}.c)
    set_target_properties(${name}_c${standard} PROPERTIES
      C_STANDARD ${standard} C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
    target_compile_options(${name}_c${standard} PRIVATE -Wpedantic -Wstrict-prototypes)
    target_link_libraries(${name}_c${standard} PRIVATE switchyard_flags)
    target_include_directories(${name}_c${standard} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_include_directories(${name}_c${standard} SYSTEM PRIVATE ${nccl_include})
  endforeach()
  switchyard_test(${name} abi_test.cc LIBS ${name}_c99 ${name}_c11)
  target_compile_options(${name} PRIVATE -Wpedantic)
  target_include_directories(${name} SYSTEM PRIVATE ${nccl_include})
endfunction()

if(NOT SWITCHYARD_CUDA)
  switchyard_abi_test(abi_host_test ${CMAKE_SOURCE_DIR}/include/host)
endif()
if(SWITCHYARD_NVIDIA_NCCL_INCLUDE)
  switchyard_abi_test(abi_nvidia_test ${SWITCHYARD_NVIDIA_NCCL_INCLUDE})
endif()

# The header declares the 18 functions, each once, and the library exports exactly these.
set(exported_library "")
if(TARGET nccl_ep)
  set(exported_library -DLIBRARY=$<TARGET_FILE:nccl_ep>)
endif()
add_test(NAME nccl_ep_exports COMMAND ${CMAKE_COMMAND} -DHEADER=${CMAKE_SOURCE_DIR}/include/nccl_ep.h
  -DMAP=${CMAKE_SOURCE_DIR}/src/capi/nccl_ep.map ${exported_library} -DNM=${CMAKE_NM}
  -P ${CMAKE_SOURCE_DIR}/cmake/CheckExports.cmake)
