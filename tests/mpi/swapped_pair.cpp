// The classic silent corruption, in two calls: A = 1000 + rank and B = 2000 + rank are summed over two ranks, A first; rank 1 takes B first.
// Both calls complete, since a communicator matches by order alone, and both sums are 3001 instead of 2001 and 4001: finite, and wrong.
//
//   mpirun -n 2 tessera_swapped_pair off|log|step|strict
//
// off, log: prints the wrong sums and exits 0. step: the sums are wrong, and comparing histories afterwards says so. strict: stops at the first call,
// before a sum exists. The last two exit 4.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "launcher/mpi_session.h"
#include "launcher/rank_guard.h"
#include "parallel/shm/shm_communicator.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

ExitCode swapped_pair(MpiSession& session, FingerprintLevel level) {
  const auto factory = make_shm_factory(Placement::canonical(session.size()), {.timeout_seconds = 10});
  const auto world =
      factory->create(canonical_groups({.dp = session.size()}).front(), {.channel = "compute", .fingerprint = level});
  CpuDevice device;
  const Stream stream = device.create_stream("compute", StreamMode::kQueue);
  std::int64_t a = 1000 + session.rank(), b = 2000 + session.rank();
  const auto sum = [&](std::int64_t& value, const char* name) {
    world
        ->all_reduce({.data = &value, .count = 1, .dtype = DType::kInt64, .tag = {.what = name, .phase = "example"}},
                     stream.view())
        .synchronize();
  };
  if (session.rank() == 0) {
    sum(a, "A");
    sum(b, "B");
  } else {
    sum(b, "B");
    sum(a, "A");
  }
  if (session.rank() == 0) {
    std::printf("A=%lld B=%lld\n", static_cast<long long>(a), static_cast<long long>(b));
    std::fflush(stdout);
  }
  world->compare_history(0, stream.view()).synchronize();
  return ExitCode::kDone;
}

int run(const std::string& level) {
  const std::map<std::string, FingerprintLevel> levels = {{"off", FingerprintLevel::kOff},
                                                          {"log", FingerprintLevel::kLog},
                                                          {"step", FingerprintLevel::kStep},
                                                          {"strict", FingerprintLevel::kStrict}};
  MpiSession session;
  return run_rank(session, [&] {
    session.agree([&] {
      if (!levels.contains(level)) throw ConfigError("usage: tessera_swapped_pair off|log|step|strict");
      if (session.size() != 2) throw ConfigError(fmt::format("{} ranks; the experiment takes 2", session.size()));
    });
    return swapped_pair(session, levels.at(level));
  });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run(argc == 2 ? argv[1] : "");
}
