#include "launcher/generate_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "fsdp/policy.h"
#include "launcher/error_path.h"
#include "launcher/generate_output.h"
#include "launcher/mpi_session.h"
#include "launcher/placement.h"
#include "launcher/rank_guard.h"
#include "launcher/rank_setup.h"
#include "launcher/wrong_start.h"
#include "runtime/config/load.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/generator.h"
#include "runtime/train/resume.h"

namespace tessera {
namespace {

// A job of the checkpoint's model on these ranks: each holds a part of every unit. How the model was trained plays no part.
JobConfig generate_config(const JobConfig& saved, int num_ranks) {
  JobConfig config;
  config.model = saved.model;
  config.loss = saved.loss;
  config.collectives.timeout_seconds = saved.collectives.timeout_seconds;
  config.batch = {.global_batch_size = num_ranks, .micro_batch_size = 1};
  return config;
}

// The lowest of all ranks' instruction sets and of the one that the checkpoint was trained with.
Isa agree_isa(MpiSession& session, const std::string& folder) {
  const Isa mine = session.rank() == 0 ? isa_to_resume_with("", folder) : current_isa();
  int lowest = static_cast<int>(mine);
  for (const std::string& text : session.all_gather(std::to_string(lowest))) lowest = std::min(lowest, std::stoi(text));
  return static_cast<Isa>(lowest);
}

ExitCode generate_rank(MpiSession& session, RankGuard& guard, const GenerateOptions& options) {
  const bool first = session.rank() == 0;
  GenerateRequest request;
  std::unique_ptr<GenerateOutput> output;
  session.agree([&] {
    if (!first) return;
    PreparedGenerate prepared = make_generate_request(options);
    request = prepared.request;
    output = std::make_unique<GenerateOutput>(options, std::move(prepared), stdout);
  });
  const std::string shared = session.all_gather(first ? request.encode() : "")[0];
  if (!first) request = GenerateRequest::decode(shared);

  JobConfig config;
  ResolvedBatch batch;
  LocalHost here;
  session.agree([&] {
    config = generate_config(check_config_text(request.config, request.folder).config, session.size());
    batch = resolve(config, session.size());
    here = this_host();
  });
  if (first && request.tokenizer_vocab_size < config.model.vocab_size) {
    std::fputs(fmt::format("note: {} has {} tokens, the model {}: those above are never chosen\n", request.tokenizer,
                           request.tokenizer_vocab_size, config.model.vocab_size)
                   .c_str(),
               stderr);
  }
  guard.set_timeout(config.collectives.timeout_seconds);
  const MeshShape axes{static_cast<int>(batch.dp), static_cast<int>(batch.pp), static_cast<int>(batch.tp)};
  const PlacementChoice choice = choose_placement(config.mesh, axes);
  const MeshShape mesh = make_mesh(config.fsdp, batch, 0);
  const JobBinding binding = agree_binding(session, here, config.device);
  const Isa isa = agree_isa(session, request.folder);
  const std::unique_ptr<CommunicatorFactory> factory = make_factory(config.collectives, choice.placement);
  const std::unique_ptr<CpuDevice> device = make_device(session, binding.mine);
  GenerateContext context{
      .config = config,
      .batch = batch,
      .mesh = mesh,
      .placement = choice.placement,
      .world_rank = session.rank(),
      .num_threads = binding.mine.num_threads,
      .factory = *factory,
      .device = *device,
      .device_memory = share_of_host(session),
      .checkpoint = request.folder,
      .instruction_set = isa,
      .prompts = request.prompt_tokens,
      .options = {.num_tokens = options.max_tokens,
                  .sampling = options.sampling,
                  .num_choices = request.tokenizer_vocab_size,
                  .stop_tokens = request.stop_tokens},
      .on_fatal = [&guard](const std::exception_ptr& error) { guard.fail(error); },
      .teardown = &guard.teardown(),
  };
  if (first) {
    context.on_token = [&](std::size_t prompt, std::uint32_t token) { output->token(prompt, token); };
    context.on_end = [&](std::size_t prompt) { output->end_of(prompt); };
  }
  generate(context);
  session.agree([&] {
    if (first) output->finish();
  });
  return ExitCode::kDone;
}

}  // namespace

int run_generate_job(const GenerateOptions& options) {
  if (const auto wrong = find_wrong_start()) {
    if (wrong->first) print_error({ExitCode::kUsage, wrong->line});
    return static_cast<int>(ExitCode::kUsage);
  }
  MpiSession session;
  RankGuard guard(session);
  return guard.run([&] { return generate_rank(session, guard, options); });
}

}  // namespace tessera
