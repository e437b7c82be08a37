# What `cmake --install` puts where: the two libraries, the headers, a CMake package and pkg-config files.
# Included after the library targets `switchyard` and `nccl_ep` exist.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The headers that stand in for NVIDIA's nccl.h and cuda.h go into a folder of their own, so that nobody includes them
# by accident on a machine that has the real ones.
set(SWITCHYARD_HOST_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR}/switchyard-host)
set(SWITCHYARD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/switchyard)
set(SWITCHYARD_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# libnccl_ep is compiled against include/host: handed a communicator of NVIDIA's, as programs on a CUDA machine would do,
# it would take that for its own. So a CUDA build installs neither it nor its headers.
set(SWITCHYARD_INSTALLED_TARGETS switchyard)
if(NOT SWITCHYARD_CUDA)
  list(APPEND SWITCHYARD_INSTALLED_TARGETS nccl_ep)
endif()

foreach(library switchyard nccl_ep)
  # lib<name>.so.0.1.0 with SONAME lib<name>.so.0
  set_target_properties(${library} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
target_compile_features(switchyard INTERFACE cxx_std_20)  # its headers need it
target_include_directories(nccl_ep INTERFACE $<INSTALL_INTERFACE:${SWITCHYARD_HOST_INCLUDEDIR}>)
set(SWITCHYARD_EXPORT_MAP ${CMAKE_SOURCE_DIR}/src/capi/nccl_ep.map)
target_link_options(nccl_ep PRIVATE LINKER:--version-script=${SWITCHYARD_EXPORT_MAP} LINKER:--no-undefined)
set_property(TARGET nccl_ep APPEND PROPERTY LINK_DEPENDS ${SWITCHYARD_EXPORT_MAP})

install(TARGETS ${SWITCHYARD_INSTALLED_TARGETS} EXPORT switchyard-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT switchyard-targets NAMESPACE switchyard:: DESTINATION ${SWITCHYARD_PACKAGE_DIR})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/switchyard-config.cmake.in
  ${CMAKE_BINARY_DIR}/switchyard-config.cmake INSTALL_DESTINATION ${SWITCHYARD_PACKAGE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/switchyard-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/switchyard-config.cmake ${CMAKE_BINARY_DIR}/switchyard-config-version.cmake
  DESTINATION ${SWITCHYARD_PACKAGE_DIR})

install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/switchyard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(NOT SWITCHYARD_CUDA)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/nccl_ep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/include/nccl_ep.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/host/ DESTINATION ${SWITCHYARD_HOST_INCLUDEDIR})
endif()

# The .pc files find their prefix from where they lie, so that an installation can be moved.
file(RELATIVE_PATH SWITCHYARD_PC_PREFIX /${SWITCHYARD_PKGCONFIG_DIR} /)
string(REGEX REPLACE "/$" "" SWITCHYARD_PC_PREFIX "${SWITCHYARD_PC_PREFIX}")
foreach(library IN LISTS SWITCHYARD_INSTALLED_TARGETS)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${library}.pc.in ${CMAKE_BINARY_DIR}/${library}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${library}.pc DESTINATION ${SWITCHYARD_PKGCONFIG_DIR})
endforeach()
