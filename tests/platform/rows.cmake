switchyard_test(numeric_test ${CMAKE_CURRENT_LIST_DIR}/numeric_test.cc TIMEOUT 60)
switchyard_test(rows_test ${CMAKE_CURRENT_LIST_DIR}/rows_test.cc TIMEOUT 60)
switchyard_test(rows_quantise_test ${CMAKE_CURRENT_LIST_DIR}/rows_quantise_test.cc TIMEOUT 60)
