// mpirun -n N mpi_conformance shm|mpi|auto [gtest flags]: the conformance suite between processes.
// mpirun -n N mpi_conformance shm forever: calls without end, for tests that kill it.
//
// All ranks run the same tests in the same order. Rank 0 prints; the others only say what failed. The program fails on
// every rank if a test failed on any.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <cstring>

#include "tests/mpi/backends.h"

namespace {

class OnlyFailures final : public ::testing::EmptyTestEventListener {
 public:
  explicit OnlyFailures(int rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "[rank %d] %s: %s:%d: %s\n", rank_, test != nullptr ? test->name() : "?",
                 result.file_name() != nullptr ? result.file_name() : "?", result.line_number(), result.summary());
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2 || provided < MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "usage: mpi_conformance shm|mpi|auto, with an MPI of thread level MULTIPLE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  tessera::testing::backend_under_test() = argv[1];
  if (argc > 2 && std::strcmp(argv[2], "forever") == 0) tessera::testing::reduce_forever();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new OnlyFailures(rank));
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
