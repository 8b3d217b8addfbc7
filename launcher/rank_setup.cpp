#include "launcher/rank_setup.h"

#include <fmt/format.h>

#include "launcher/cpuset.h"
#include "launcher/host_memory.h"
#include "parallel/mpi/mpi_communicator.h"
#include "parallel/shm/shm_communicator.h"
#include "runtime/base/error.h"
#include "runtime/train/reporter.h"

namespace tessera {

std::unique_ptr<CommunicatorFactory> make_factory(const CollectivesConfig& config, const Placement& placement) {
  CommunicatorOptions options;
  options.timeout_seconds = config.timeout_seconds;
  if (config.backend == "shm") return make_shm_factory(placement, options);
  if (config.backend == "mpi") return make_mpi_factory(placement, options);
  require(config.backend == "auto", "collectives.backend was checked when it was loaded");
  return make_auto_factory(placement, options);
}

LocalHost this_host() {
  return {load_topology("live"), current_cpuset()};
}

JobBinding agree_binding(MpiSession& session, const LocalHost& here, const DeviceConfig& config) {
  std::vector<std::vector<int>> given;
  for (const std::string& text : session.all_gather_local(cpuset_text(here.cpuset)))
    given.push_back(parse_cpuset(text));
  const std::vector<RankBinding> local = plan_bindings(here.machine, given, config.threads, config.bind);
  JobBinding binding{local[static_cast<std::size_t>(session.local_rank())], {}};
  const BoundRank mine{session.rank(), session.host(), static_cast<int>(here.machine.cores.size()), binding.mine};
  for (const std::string& text : session.all_gather(mine.encode())) binding.all.push_back(BoundRank::decode(text));
  return binding;
}

std::unique_ptr<CpuDevice> make_device(MpiSession& session, const RankBinding& binding) {
  std::unique_ptr<CpuDevice> device;
  session.agree([&] {
    device = std::make_unique<CpuDevice>(CpuDeviceOptions{
        .num_threads = binding.num_threads,
        .on_thread_start = [binding](int index) { bind_thread(binding, index); },
    });
    bind_thread(binding, 0);
  });
  return device;
}

MemoryBudget share_of_host(const MpiSession& session) {
  const std::int64_t bytes = host_memory_bytes();
  return {bytes / session.local_size(),
          fmt::format("{} of {} for {} ranks", format_bytes(bytes), session.host(), session.local_size())};
}

}  // namespace tessera
