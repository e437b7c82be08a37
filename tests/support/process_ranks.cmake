# Ranks as processes, for the test folders that include this: links as sy_process_ranks.
include_guard(GLOBAL)
add_library(sy_process_ranks STATIC ${CMAKE_CURRENT_LIST_DIR}/process_ranks.cc
  ${CMAKE_SOURCE_DIR}/tools/child_process.cc)
target_include_directories(sy_process_ranks PUBLIC ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR})
target_link_libraries(sy_process_ranks PUBLIC switchyard_flags switchyard_internal sy_test_main)
# GCC 12 sees null pointers in CLI11's headers where there are none.
target_compile_options(sy_process_ranks PRIVATE -Wno-null-dereference)
