// A rank without a job, for tests of the session and of the ways out of it: tessera_session_program WHAT [RANK…].
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "launcher/mpi_session.h"
#include "launcher/rank_guard.h"
#include "launcher/stop_signal.h"
#include "launcher/supervisor.h"
#include "parallel/mpi/mpi_communicator.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

// Stands for ranks that wait for one that is gone.
[[noreturn]] void wait_for_ever(MpiSession& session) {
  for (;;) session.barrier();
}

// A step in small: an all_gather runs ahead on its own stream while the chosen ranks fail in the compute stream; the others go on to a
// collective that those never reach. said: by the guard, while everything stands; otherwise the exception unwinds through all owners.
ExitCode fail_in_backward(MpiSession& session, RankGuard& guard, bool chosen, bool said) {
  const auto factory = make_auto_factory(Placement::canonical(session.size()));
  const auto world = factory->create(canonical_groups({.dp = session.size()}).front(), {});
  std::vector<float> shard(1000, 1.0F), full(shard.size() * static_cast<std::size_t>(session.size()));
  CpuDevice device;
  // Last, hence gone first: a stream that is being destroyed finishes what it holds, and that needs all of the above.
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    const Work prefetch =
        world->all_gather({.input = shard.data(), .output = full.data(), .count = shard.size()}, gather.view());
    try {
      compute.view().enqueue([&] {
        if (chosen && micro_batch == 1) throw DeviceError("backward: no memory for block.1");
      });
    } catch (const DeviceError&) {
      if (!said) throw;
      guard.fail(std::current_exception());
    }
    prefetch.synchronize();
  }
  wait_for_ever(session);
}

ExitCode run(MpiSession& session, RankGuard& guard, const std::string& what, const std::set<int>& ranks) {
  const bool chosen = ranks.contains(session.rank());
  if (what == "finish") {
    const auto names = session.all_gather(fmt::format("rank {}", session.rank()));
    require(names.back() == fmt::format("rank {}", session.size() - 1), "texts come by rank");
    session.barrier();
    return ExitCode::kDone;
  }
  if (what == "groups") {  // every process makes the same list by itself; rank 0 prints what it and the others found
    for (const MeshShape& shape : {MeshShape{2, 2, 2}, MeshShape{4, 2, 1}, MeshShape{1, 2, 4}, MeshShape{8, 1, 1}}) {
      const auto hashes = session.all_gather(fmt::format("{:016x}", hash_of(canonical_groups(shape))));
      const std::set<std::string> distinct(hashes.begin(), hashes.end());
      if (session.rank() == 0)
        std::printf("%s: %zu ranks, %zu lists\n", shape.str().c_str(), hashes.size(), distinct.size());
    }
    return ExitCode::kDone;
  }
  if (what == "agree") {  // an error of the start, on some ranks
    session.agree([] {});
    session.agree([&] {
      if (chosen) throw DataError(fmt::format("data: file of rank {} is empty", session.rank()), "write to it");
    });
    wait_for_ever(session);  // never reached: all ranks left
  }
  if (what == "throw") {  // an error of the run, on some ranks; the others wait for them
    if (chosen) throw DeviceError(fmt::format("memory: rank {} has none", session.rank()));
    wait_for_ever(session);
  }
  if (what == "backward") return fail_in_backward(session, guard, chosen, true);
  if (what == "backward-unwinding") return fail_in_backward(session, guard, chosen, false);
  if (what == "bug") {
    if (chosen) throw std::logic_error("surprise");
    wait_for_ever(session);
  }
  if (what == "shadow" ||
      what == "shadow-with-a-waiter") {  // an error of its own on some ranks, what that does to calls on the others
    if (chosen) throw std::logic_error("surprise");
    if (what == "shadow" || session.rank() == 0) throw CollectiveError("no sign of a rank");
    wait_for_ever(session);
  }
  if (what == "stopped") return ExitCode::kStoppedUnsaved;
  if (what == "killed" && chosen) std::raise(SIGKILL);
  if (what == "killed") wait_for_ever(session);
  if (what == "deaf") {  // never answers a request to stop
    std::printf("ready\n");
    std::fflush(stdout);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (what == "wait-for-stop") {
    std::printf("ready\n");
    std::fflush(stdout);
    while (!stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    session.barrier();
    if (session.rank() == 0) std::printf("%s\n", signal_name(stop_signal()));
    return ExitCode::kStoppedUnsaved;
  }
  throw InternalError("no such mode: " + what);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  // Not a rank: the launcher of `tessera launch` around any line.
  if (argc > 2 && std::string(argv[1]) == "supervise") {
    return tessera::run_guarded(
        [&] { return tessera::run_job({.arguments = std::vector<std::string>(argv + 2, argv + argc)}); });
  }
  std::set<int> ranks;
  for (int i = 2; i < argc; ++i) ranks.insert(std::atoi(argv[i]));
  return tessera::run_guarded([&] {
    tessera::install_stop_signals();
    tessera::MpiSession session;
    tessera::RankGuard guard(session);
    return guard.run([&] { return tessera::run(session, guard, argc > 1 ? argv[1] : "finish", ranks); });
  });
}
