# The baseline that every figure of the library is set against. It may use all this processor has: a slow baseline
# would flatter us.
find_package(MPI COMPONENTS CXX)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
if(MPI_CXX_FOUND)
  add_executable(mpi_baseline mpi_baseline.cc)
  # GCC 12 sees null pointers in CLI11's headers where there are none.
  set_source_files_properties(mpi_baseline.cc PROPERTIES COMPILE_OPTIONS -Wno-null-dereference)
  target_compile_options(mpi_baseline PRIVATE -O3 -march=native)
  target_compile_definitions(mpi_baseline PRIVATE OMPI_SKIP_MPICXX)
  target_include_directories(mpi_baseline PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(mpi_baseline PRIVATE switchyard_flags MPI::MPI_CXX CLI11::CLI11 fmt::fmt
    nlohmann_json::nlohmann_json)
  install(TARGETS mpi_baseline RUNTIME)  # beside `switchyard`, which looks for it there
else()
  message(STATUS "Open MPI not found: no mpi_baseline (apt-get install openmpi-bin libopenmpi-dev)")
endif()
