#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>

#include "parallel/mpi/mpi_communicator.h"
#include "parallel/shm/shm_communicator.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/mpi/backends.h"
#include "tests/support/conformance/conformance.h"

namespace tessera::testing {

std::string& backend_under_test() {
  static std::string backend = "shm";
  return backend;
}

namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::unique_ptr<CommunicatorFactory> make_factory(const Placement& placement, const CommunicatorOptions& options) {
  if (backend_under_test() == "shm") return make_shm_factory(placement, options);
  if (backend_under_test() == "mpi") return make_mpi_factory(placement, options);
  return make_auto_factory(placement, options);
}

// World rank r is logical rank N - 1 - r: nobody may take one for the other.
Placement reversed() {
  Placement placement = Placement::canonical(world_size());
  std::reverse(placement.logical_of_world.begin(), placement.logical_of_world.end());
  return placement;
}

// A zeroed counter that all ranks see, where they share a host.
class SharedCounter {
 public:
  SharedCounter() {
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int local = 0;
    MPI_Comm_size(host, &local);
    if (local == world_size()) {
      void* base = nullptr;
      MPI_Win_allocate_shared(world_rank() == 0 ? sizeof(std::int64_t) : 0, 8, MPI_INFO_NULL, host, &base, &window_);
      MPI_Aint bytes = 0;
      int unit = 0;
      MPI_Win_shared_query(window_, 0, &bytes, &unit, &base);
      counter_ = static_cast<std::atomic<std::int64_t>*>(base);
      if (world_rank() == 0) counter_->store(0);
      MPI_Barrier(host);
    }
    MPI_Comm_free(&host);
  }
  ~SharedCounter() {
    if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  }
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;
  std::atomic<std::int64_t>* get() const { return counter_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::atomic<std::int64_t>* counter_ = nullptr;
};

using Parameters = std::tuple<bool, std::size_t>;  // small chunks and reversed ranks, case

class Backend : public ::testing::TestWithParam<Parameters> {};

TEST_P(Backend, Conforms) {
  const auto [unusual, index] = GetParam();
  const Placement placement = unusual ? reversed() : Placement::canonical(world_size());
  CommunicatorOptions options{.timeout_seconds = 60};
  if (unusual) options.max_chunk_elements = 1000;
  const SharedCounter counter;
  const auto factory = make_factory(placement, options);
  ConformanceRank at{placement.logical_of_world[static_cast<std::size_t>(world_rank())], world_size(), factory.get(),
                     options, counter.get()};
  conformance_cases()[index].run(at);
  MPI_Barrier(MPI_COMM_WORLD);
}

std::string name_of_test(const ::testing::TestParamInfo<Parameters>& test) {
  const auto [unusual, index] = test.param;
  return conformance_cases()[index].name + (unusual ? "_small_chunks_reversed_ranks" : "");
}

INSTANTIATE_TEST_SUITE_P(Conformance, Backend,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Range(std::size_t{0}, conformance_cases().size())),
                         name_of_test);

TEST(Stall, NamesTheWorldRankThatDoesNotCome) {
  if (world_size() < 2) GTEST_SKIP() << "needs two ranks";
  CpuDevice device;
  const Placement placement = reversed();
  const auto factory = make_factory(placement, {.timeout_seconds = 0.3});
  auto communicator = factory->create(canonical_groups({.dp = world_size()})[0], {});
  Stream stream = device.create_stream("gather", StreamMode::kQueue);
  MPI_Barrier(MPI_COMM_WORLD);
  const int absent = world_size() - 1;
  if (world_rank() != absent) {
    float data = 0;
    const Work work = communicator->all_reduce(
        {.data = &data, .count = 1, .tag = {.what = "norm", .phase = "update", .step = 9}}, stream.view());
    try {
      work.synchronize();
      ADD_FAILURE() << "the call ended well";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(std::string(error.what()),
                "call 0 of world/ (all_reduce norm update, step 9, 1 fp32 sum): no sign of world rank " +
                    std::to_string(absent) + " within 0.3 s");
      EXPECT_EQ(error.exit_code(), ExitCode::kCollective);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// The receiver refuses; the sender waits for its receipt, or has long gone on.
TEST(Message, ThatItsReceiverDidNotExpectIsRefusedBeforeItsDataIsUsed) {
  if (world_size() < 2) GTEST_SKIP() << "needs two ranks";
  CpuDevice device;
  const auto factory = make_factory(Placement::canonical(world_size()), {.timeout_seconds = 1});
  auto communicator = factory->create(canonical_groups({.dp = world_size()})[0], {.channel = "pipe"});
  Stream stream = device.create_stream("pipe", StreamMode::kQueue);
  float value = world_rank() == 0 ? 5.0F : 0.0F;
  if (world_rank() == 0) {
    communicator->send({.data = &value, .count = 1, .peer = 1, .tag = {.what = "a", .phase = "forward"}},
                       stream.view());
    try {
      stream.view().synchronize();
    } catch (const CollectiveError&) {  // no receipt
    }
  } else if (world_rank() == 1) {
    communicator->recv({.data = &value, .count = 1, .peer = 0, .tag = {.what = "b", .phase = "forward"}},
                       stream.view());
    try {
      stream.view().synchronize();
      ADD_FAILURE() << "the message was taken";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(std::string(error.what()),
                "message mismatch on world/pipe: rank 0: send a forward, step 0, 0 → 1, 1 fp32; rank 1: tag b forward; "
                "none of its data was used");
    }
    EXPECT_EQ(value, 0.0F);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// After a skipped call the comparison meets an ordinary call of the others.
TEST(History, ASkippedCallIsFoundByTheNextComparison) {
  if (world_size() < 2) GTEST_SKIP() << "needs two ranks";
  CpuDevice device;
  const auto factory = make_factory(Placement::canonical(world_size()), {.timeout_seconds = 1});
  auto communicator = factory->create(canonical_groups({.dp = world_size()})[0],
                                      {.channel = "reduce", .fingerprint = FingerprintLevel::kStep});
  Stream stream = device.create_stream("reduce", StreamMode::kQueue);
  std::vector<float> data(4, 1.0F);
  std::string message;
  try {
    if (world_rank() != 1) communicator->all_reduce({.data = data.data(), .count = 4}, stream.view());
    communicator->compare_history(1, stream.view()).synchronize();
  } catch (const CollectiveError& error) {
    message = error.what();
  }
  if (world_rank() == 1) {
    const bool compared = message.find("the calls of world/reduce before call 0 differ") != std::string::npos;
    const bool missed = message.find("no sign of world rank") != std::string::npos;
    EXPECT_TRUE(compared || missed) << message;
  } else {
    EXPECT_NE(message, "");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

bool on_several_hosts() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int local = 0;
  MPI_Comm_size(host, &local);
  MPI_Comm_free(&host);
  return local < world_size();
}

TEST(Hosts, ShmRefusesAGroupOfTwoHostsAndNamesBoth) {
  if (!on_several_hosts()) GTEST_SKIP() << "needs two hosts";
  const auto factory = make_shm_factory(Placement::canonical(world_size()));
  try {
    factory->create(canonical_groups({.dp = world_size()})[0], {});
    ADD_FAILURE() << "accepted";
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.line(),
              "shm: world spans hosts tessera-a and tessera-b; hint: set collectives.backend: auto, or mpi");
  }
}

TEST(Hosts, AutoUsesSharedMemoryWhereAGroupHasOneHost) {
  if (world_size() != 4) GTEST_SKIP() << "needs four ranks";
  const bool several = on_several_hosts();  // then ranks 0 and 1 share one, 2 and 3 the other
  const auto factory = make_auto_factory(Placement::canonical(4));
  EXPECT_NE(factory->shared_memory(), nullptr);
  for (const Group& group : canonical_groups({.dp = 2, .pp = 1, .tp = 2})) {
    const auto communicator = factory->create(group, {});
    if (communicator == nullptr) continue;
    const bool crosses = several && (group.axis == Axis::kWorld || group.axis == Axis::kDp);
    EXPECT_EQ(communicator->backend(), crosses ? "mpi" : "shm") << group.name();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

void reduce_forever() {
  CpuDevice device;
  Stream stream = device.create_stream("gather", StreamMode::kQueue);
  const auto factory = make_factory(Placement::canonical(world_size()), {});
  auto communicator = factory->create(canonical_groups({.dp = world_size()})[0], {});
  constexpr std::uint64_t kCount = 1U << 20;
  MemoryResource* shared = factory->shared_memory();
  auto* data = static_cast<float*>(shared->allocate(kCount * sizeof(float)));
  for (std::int64_t round = 0;; ++round) {
    communicator->all_reduce({.data = data, .count = kCount}, stream.view()).synchronize();
    if (round == 0 && world_rank() == 0) {
      std::puts("ready");
      std::fflush(stdout);
    }
  }
}

}  // namespace tessera::testing
