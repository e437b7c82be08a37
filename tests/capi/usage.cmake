# The C API as programs use and misuse it: ranks as threads, results against the model.
if(TARGET sy_oracle AND NOT SWITCHYARD_CUDA)
  add_library(ep_rank STATIC ep_rank.cc)
  target_include_directories(ep_rank BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/include/host)
  target_link_libraries(ep_rank PUBLIC switchyard_flags sy_oracle GTest::gtest)

  switchyard_test(nccl_ep_test nccl_ep_round_trip_test.cc nccl_ep_group_misuse_test.cc nccl_ep_dispatch_misuse_test.cc
    nccl_ep_recipe_misuse_test.cc nccl_ep_combine_misuse_test.cc nccl_ep_mask_test.cc nccl_ep_ht_test.cc
    nccl_ep_ht_misuse_test.cc LIBS ep_rank TIMEOUT 180)
  switchyard_test(host_nccl_test host_nccl_test.cc LIBS ep_rank TIMEOUT 180)
  switchyard_test(lifetime_test lifetime_test.cc LIBS ep_rank TIMEOUT 180)
endif()
switchyard_test(tensor_extents_test tensor_extents_test.cc)

# The examples, started as their first lines say. They end with an error if a single value is wrong.
if(TARGET switchyard_tool)
  foreach(example moe_decode user_all_to_all)
    if(TARGET ${example})
      foreach(num_ranks 2 4)
        add_test(NAME example_${example}_${num_ranks}
          COMMAND switchyard_tool run -n ${num_ranks} -- $<TARGET_FILE:${example}>)
        set_tests_properties(example_${example}_${num_ranks} PROPERTIES TIMEOUT 60)
      endforeach()
    endif()
  endforeach()
endif()
