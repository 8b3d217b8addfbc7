#include "tests/support/conformance/timing.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera::testing {
namespace {

struct Seen {
  std::string name;
  int group_size;
  std::int64_t enqueued_ns, started_ns, finished_ns, waited_ns;
};

class Recorder final : public CallRecorder {
 public:
  bool wants_calls() const override { return wanted; }
  void on_finished(const TimedCall& call) override {
    const CollectiveIdentity& identity = call.identity;
    calls.push_back({std::string(name_of(identity.op)) + " " + std::string(identity.what_view()), call.group_size,
                     call.enqueued_ns, call.started_ns, call.finished_ns, call.waited_ns});
  }
  bool wanted = true;
  std::vector<Seen> calls;
};

void calls_are_timed_at_every_level_for_who_wants_them(ConformanceRank& at) {
  for (const FingerprintLevel level : {FingerprintLevel::kOff, FingerprintLevel::kStrict}) {
    CpuDevice device;
    const auto recorder = std::make_shared<Recorder>();
    const auto world = at.factory->create(canonical_groups({.dp = at.num_ranks})[0],
                                          {.channel = "gather", .fingerprint = level, .recorder = recorder});
    const Stream stream = device.create_stream("timing", StreamMode::kQueue);
    std::int64_t value = at.rank;
    std::vector<std::int64_t> all(static_cast<std::size_t>(at.num_ranks));
    const std::int64_t before = monotonic_ns();
    world->all_gather(
        {.input = &value, .output = all.data(), .count = 1, .dtype = DType::kInt64, .tag = {.what = "first"}},
        stream.view());
    recorder->wanted = false;  // of calls from here on
    world->barrier({.what = "second"}, stream.view());
    recorder->wanted = true;
    world->barrier({.what = "third"}, stream.view());
    stream.view().synchronize();
    const std::int64_t after = monotonic_ns();

    ASSERT_EQ(recorder->calls.size(), 2U);
    EXPECT_EQ(recorder->calls[0].name, "all_gather first");
    EXPECT_EQ(recorder->calls[1].name, "barrier third");
    std::int64_t earlier = before;
    for (const Seen& call : recorder->calls) {
      EXPECT_EQ(call.group_size, at.num_ranks);
      EXPECT_LE(before, call.enqueued_ns);
      EXPECT_LE(call.enqueued_ns, call.started_ns);
      EXPECT_LE(earlier, call.started_ns);
      EXPECT_LE(call.waited_ns, call.finished_ns - call.started_ns);
      EXPECT_GE(call.waited_ns, 0);
      earlier = call.finished_ns;
    }
    EXPECT_LE(earlier, after);
    // A barrier moves nothing: somebody waited in it.
    std::int64_t waited = recorder->calls[1].waited_ns;
    world->all_reduce({.data = &waited, .count = 1, .dtype = DType::kInt64, .reduce = ReduceOp::kMax}, stream.view())
        .synchronize();
    EXPECT_EQ(waited > 0, at.num_ranks > 1);
  }
}

}  // namespace

std::vector<ConformanceCase> timing_cases() {
  return {{"CallsAreTimedAtEveryLevelForWhoWantsThem", calls_are_timed_at_every_level_for_who_wants_them}};
}

}  // namespace tessera::testing
