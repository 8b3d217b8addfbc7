#include "launcher/train_job.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "fsdp/policy.h"
#include "launcher/binding.h"
#include "launcher/mpi_session.h"
#include "launcher/placement.h"
#include "launcher/rank_guard.h"
#include "launcher/rank_setup.h"
#include "launcher/stop_signal.h"
#include "launcher/topology.h"
#include "launcher/wrong_start.h"
#include "runtime/base/log.h"
#include "runtime/config/load.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/resume.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

ProgressMode progress_mode(const std::string& wanted) {
  if (wanted == "bar") return ProgressMode::kBar;
  if (wanted == "plain") return ProgressMode::kPlain;
  // mpirun gives every rank a terminal of width 0: only a real one has columns to draw in.
  winsize window{};
  const bool wide =
      ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return wide ? ProgressMode::kBar : ProgressMode::kPlain;
}

void check_keys(const std::vector<std::string>& keys) {
  const std::vector<std::string> known = all_keys();
  for (const std::string& key : keys) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string hint;
    try {
      explain_key(key);                                                       // knows the nearest name
      hint = fmt::format("one of its keys: tessera config explain {}", key);  // of a section
    } catch (const ConfigError& error) {
      hint = error.hint();
      const bool is_bare =
          !hint.empty() && hint.find_first_of(". ") == std::string::npos;  // a name of the same section
      if (is_bare && key.find('.') != std::string::npos) hint.insert(0, key.substr(0, key.find('.') + 1));
    }
    throw ConfigError(fmt::format("--allow-change {}: unknown key", key),
                      hint.empty() ? "tessera config explain lists them" : hint);
  }
}

// Rank 0 reads: what the others see of a folder that another run is writing may differ.
void adopt_stored_lanes(MpiSession& session, JobConfig& config, const std::string& run_directory) {
  std::string lanes;
  if (session.rank() == 0) {
    if (const auto stored = stored_choices(run_directory, config.checkpoint.resume))
      lanes = std::to_string(stored->lanes);
  }
  lanes = session.all_gather(lanes)[0];
  if (!lanes.empty()) adopt_lanes(config, StoredChoices{.lanes = std::stoll(lanes)});
}

ExitCode train_rank(MpiSession& session, RankGuard& guard, const TrainOptions& options) {
  JobConfig config;
  ResolvedBatch batch;
  LocalHost here;
  std::string described;
  session.agree([&] {
    config = load_config(options.config, options.overrides);
    if (!options.resume.empty()) config.checkpoint.resume = options.resume;
    check_keys(options.allowed_changes);
  });
  const std::string run_directory = options.run_directory.empty() ? "runs/" + config.run.name : options.run_directory;
  adopt_stored_lanes(session, config, run_directory);
  session.agree([&] {
    batch = resolve(config, session.size());
    here = this_host();
    described = (config.mesh.topology == "live" ? here.machine : load_topology(config.mesh.topology)).str();
  });
  guard.set_timeout(config.collectives.timeout_seconds);
  const MeshShape axes{static_cast<int>(batch.dp), static_cast<int>(batch.pp), static_cast<int>(batch.tp)};
  const PlacementChoice choice = choose_placement(config.mesh, axes);
  const std::vector<std::string> hosts = session.all_gather(session.host());
  MeshShape mesh;
  session.agree([&] { mesh = make_mesh(config.fsdp, batch, dp_neighbours_per_host(hosts, choice.placement, axes)); });
  const JobBinding binding = agree_binding(session, here, config.device);
  if (session.rank() == 0) {
    for (const std::string& warning : binding_warnings(binding.all)) log::warn(warning);
  }
  log::info("device: " + binding.mine.str());
  log::info("machine: " + here.machine.str());
  log::info("mesh: " + mesh.str() + ", " + choice.reason);
  const std::unique_ptr<CommunicatorFactory> factory = make_factory(config.collectives, choice.placement);
  const std::unique_ptr<CpuDevice> device = make_device(session, binding.mine);

  const TrainContext context{
      .config = config,
      .batch = batch,
      .mesh = mesh,
      .placement = choice.placement,
      .world_rank = session.rank(),
      .host = session.host(),
      .run_directory = run_directory,
      .device_summary = fmt::format("cpu, {}", binding_summary(binding.all)),
      .topology_summary = described,
      .num_threads = binding.mine.num_threads,
      .factory = *factory,
      .device = *device,
      .device_memory = share_of_host(session),
      .progress = progress_mode(options.progress),
      .allowed_changes = options.allowed_changes,
      .stop_requested = stop_requested,
      .on_fatal = [&guard](const std::exception_ptr& error) { guard.fail(error); },
      .teardown = &guard.teardown(),
      .on_log =
          [&](CollectiveLog* log) {
            guard.watch_log(log, run_directory);
            if (log != nullptr) session.share_last_word(run_directory + "/config.yaml");
          },
      .on_chaos = [&guard](std::function<std::string(FoundBy)> report) { guard.set_note(std::move(report)); },
  };
  return train(context);
}

}  // namespace

int run_train_job(const TrainOptions& options) {
  if (const auto wrong = find_wrong_start()) {
    if (wrong->first) print_error({ExitCode::kUsage, wrong->line});
    return static_cast<int>(ExitCode::kUsage);
  }
  install_stop_signals();
  MpiSession session;
  RankGuard guard(session, options.on_teardown);
  return guard.run([&] { return train_rank(session, guard, options); });
}

}  // namespace tessera
