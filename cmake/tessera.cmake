# Helpers that keep one library per row of the folder table and one test program per folder.

add_library(tessera_flags INTERFACE)
# No contraction: a fused multiply-add exists only where it is written, so that bits do not depend on the compiler's mood.
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Wshadow -Wno-unused-parameter -Wno-missing-field-initializers
                       -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about overlapping copies inside std::string's own operator+ (its bug 105651).
  target_compile_options(tessera_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class of a source file counts as one of a header where the compiler was given a list of source files.
  target_compile_options(tessera_flags INTERFACE -Wno-subobject-linkage)
endif()
# Sanitizers change what the optimiser sees, and with it what it suspects: their builds warn only.
if(TESSERA_DEVELOPER AND NOT TESSERA_SANITIZE)
  target_compile_options(tessera_flags INTERFACE -Werror)
endif()
if(TESSERA_SANITIZE)
  target_compile_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
target_include_directories(tessera_flags INTERFACE ${PROJECT_SOURCE_DIR})

# tessera_library(NAME [DEPENDS libs...] [PRIVATE third parties...] [RECURSE dirs...] [LOOPS])
# All .cpp files of the current folder and of the named sub-folders make one static library. LOOPS: it loops over the elements of tensors, and is
# worth a slower compilation.
function(tessera_library NAME)
  cmake_parse_arguments(ARG "LOOPS" "" "DEPENDS;PRIVATE;RECURSE" ${ARGN})
  file(GLOB SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(DIR ${ARG_RECURSE})
    file(GLOB SUB CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${DIR}/*.cpp)
    list(APPEND SOURCES ${SUB})
  endforeach()
  list(FILTER SOURCES EXCLUDE REGEX "/main\\.cpp$")
  if(SOURCES)
    add_library(${NAME} STATIC ${SOURCES})
    target_link_libraries(${NAME} PUBLIC tessera_flags ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE})
    if(ARG_LOOPS AND NOT TESSERA_SANITIZE)
      target_compile_options(${NAME} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3>)
    endif()
  else()
    add_library(${NAME} INTERFACE)
    target_link_libraries(${NAME} INTERFACE tessera_flags ${ARG_DEPENDS})
  endif()
endfunction()

# tessera_tests(FOLDER [DEPENDS libs...] [LOOPS]): tests/FOLDER/*.cpp make the program test_FOLDER. LOOPS: they loop over the elements of tensors.
# Labels: "mpi" for suites whose name starts with Mpi, which start processes with mpirun, and "unit" for the others, ranks as threads included:
# those are what the sanitizers see. The mpi tests run in rows, one test of each at a time: those that start and end jobs, those that wait for
# deadlines, scripts with deliberate faults (tests/mpi), and all others, which compute. The rows are the longest way through the tests, so they begin first (COST) and
# the unit tests fill in beside them.
# (ctest asks the program for its tests when it runs.)
function(tessera_tests FOLDER)
  cmake_parse_arguments(ARG "LOOPS" "" "DEPENDS" ${ARGN})
  file(GLOB SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${FOLDER}/*.cpp)
  if(SOURCES)
    add_executable(test_${FOLDER} ${SOURCES})
    target_link_libraries(test_${FOLDER} PRIVATE ${ARG_DEPENDS} tessera_test_support GTest::gtest GTest::gtest_main)
    target_compile_definitions(test_${FOLDER} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                                     TESSERA_BINARY_DIR="${PROJECT_BINARY_DIR}")
    if(ARG_LOOPS)
      target_compile_options(test_${FOLDER} PRIVATE ${LOOP_OPTIONS})
    endif()
    include(GoogleTest)
    gtest_discover_tests(test_${FOLDER} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${FOLDER}." TEST_FILTER "-Mpi*:*/Mpi*"
                         TEST_LIST ${FOLDER}_UNIT PROPERTIES TIMEOUT 300 LABELS unit)
    set(STARTING "MpiRestart*:MpiTeardown*:MpiSave*:MpiSignal*:MpiSupervisor*:MpiGenerate*")
    set(WAITING "MpiWatchdog*:MpiChaos*:MpiLostHost*")
    set(COMPUTING "Mpi*:*/Mpi*-${STARTING}:${WAITING}")
    foreach(ROW STARTING WAITING COMPUTING)
      gtest_discover_tests(test_${FOLDER} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${FOLDER}." TEST_FILTER "${${ROW}}"
                           TEST_LIST ${FOLDER}_${ROW} PROPERTIES TIMEOUT 300 LABELS mpi RESOURCE_LOCK MPI_${ROW} COST 100)
    endforeach()
  endif()
endfunction()
