add_executable(coll_bench ${CMAKE_CURRENT_LIST_DIR}/coll_bench.cc)
target_link_libraries(coll_bench PRIVATE switchyard_internal)
