# Every third party, found once. Each is linked only by the library whose room it lives in (docs/design.md, section Folders;
# docs/dependencies.md says what each is for).
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
# mpi.h of some releases pulls in the C++ interface that MPI 3 removed, and with it a library that is not linked.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
if(TESSERA_TESTS)
  find_package(GTest REQUIRED)
endif()
# yaml-cpp 0.7 exports a plain name, later releases a namespaced one.
if(TARGET yaml-cpp::yaml-cpp)
  set(YAML_CPP_TARGET yaml-cpp::yaml-cpp)
else()
  set(YAML_CPP_TARGET yaml-cpp)
endif()

# tessera_find(TARGET HEADER header PACKAGE name LIBRARIES names…): an imported target for a library that is found by its files.
# For those whose packages describe themselves badly or not at all: oneDNN's CMake file asks for OpenCL's development files, and
# sentencepiece's pkg-config file for protobuf's, which Debian does not install with them.
function(tessera_find TARGET)
  cmake_parse_arguments(ARG "" "HEADER;PACKAGE" "LIBRARIES" ${ARGN})
  string(MAKE_C_IDENTIFIER ${TARGET} ID)
  find_path(${ID}_INCLUDE_DIR NAMES ${ARG_HEADER})
  mark_as_advanced(${ID}_INCLUDE_DIR)
  set(FILES)
  foreach(NAME ${ARG_LIBRARIES})
    find_library(${ID}_${NAME}_LIBRARY NAMES ${NAME})
    mark_as_advanced(${ID}_${NAME}_LIBRARY)
    list(APPEND FILES ${${ID}_${NAME}_LIBRARY})
  endforeach()
  if(NOT ${ID}_INCLUDE_DIR OR FILES MATCHES "NOTFOUND" OR NOT FILES)
    message(FATAL_ERROR "${ARG_PACKAGE} not found; tools/install_dependencies installs it")
  endif()
  add_library(${TARGET} INTERFACE IMPORTED GLOBAL)
  set_target_properties(${TARGET} PROPERTIES INTERFACE_LINK_LIBRARIES "${FILES}" INTERFACE_INCLUDE_DIRECTORIES "${${ID}_INCLUDE_DIR}")
endfunction()

tessera_find(DNNL::dnnl HEADER oneapi/dnnl/dnnl.hpp LIBRARIES dnnl PACKAGE "oneDNN (libdnnl-dev or libonednn-dev)")
tessera_find(hwloc::hwloc HEADER hwloc.h LIBRARIES hwloc PACKAGE libhwloc-dev)
# By its files too: its pkg-config file names its own dependencies on newer releases, and its CMake file is not everywhere.
tessera_find(re2::re2 HEADER re2/re2.h LIBRARIES re2 PACKAGE libre2-dev)
tessera_find(xxhash::xxhash HEADER xxhash.h LIBRARIES xxhash PACKAGE libxxhash-dev)
tessera_find(ICU::uc HEADER unicode/uchar.h LIBRARIES icuuc PACKAGE libicu-dev)
tessera_find(sentencepiece::sentencepiece HEADER sentencepiece_processor.h LIBRARIES sentencepiece sentencepiece_train
             PACKAGE libsentencepiece-dev)
