#include "runtime/train/generator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "checkpoint/file_system.h"
#include "fsdp/ledger_timeline.h"
#include "fsdp/schedule.h"
#include "fsdp/sharded_model.h"
#include "fsdp/units.h"
#include "models/gpt.h"
#include "runtime/train/agreement.h"
#include "runtime/train/load_weights.h"
#include "runtime/train/plan.h"
#include "runtime/train/plan_proof.h"
#include "runtime/train/program_check.h"
#include "runtime/train/reporter.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

// Nothing is trained: no moments, no gradients.
ModelSpec frozen_model(const ModelConfig& config, int num_threads) {
  ModelSpec model = describe_gpt(config, 1, num_threads);
  for (ParameterSpec& parameter : model.parameters) parameter.frozen = true;
  return model;
}

class Generator {
 public:
  explicit Generator(const GenerateContext& context)
      : context_(context),
        compute_(context.device.create_stream("compute", StreamMode::kCompute)),
        gather_(context.device.create_stream("gather", StreamMode::kQueue)),
        reduce_(context.device.create_stream("reduce", StreamMode::kQueue)) {}

  ~Generator() {
    // What streams still hold uses all that goes next.
    for (const Stream* stream : {&gather_, &reduce_, &compute_}) {
      try {
        stream->view().synchronize();
      } catch (...) {
        // Said already, or about to be.
      }
    }
  }
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  void run() {
    if (context_.instruction_set != current_isa()) set_isa(context_.instruction_set);
    communicators_ = std::make_unique<CommunicatorSet>(
        context_.mesh, context_.factory,
        CommunicatorHooks{.fingerprint = FingerprintLevel::kStrict, .observer = observer_});
    agreed([&] { build(); });
    agreed([&] {
      const auto files = make_posix_file_system();
      step_ = load_weights(*files, context_.checkpoint, context_.config.model, *model_, compute_.view()).step;
    });
    Sampler sampler(context_.config, *model_, *communicators_, context_.device,
                    {compute_.view(), gather_.view(), reduce_.view()}, schedule_, check_.get());
    for (std::size_t i = 0; i < context_.prompts.size(); ++i) continue_prompt(sampler, i);
  }

  // On return all ranks know that all are finished (parallel/teardown.h).
  void leave() {
    enter(TeardownState::kStreams);
    gather_.view().synchronize();
    reduce_.view().synchronize();
    enter(TeardownState::kPeers);
    if (communicators_ != nullptr)
      world().barrier({.what = "finished", .phase = "teardown"}, reduce_.view()).synchronize();
    enter(TeardownState::kBarrier);
    if (communicators_ != nullptr) world().barrier({.what = "end", .phase = "teardown"}, reduce_.view()).synchronize();
  }

  void enter(TeardownState state) {
    if (context_.teardown != nullptr) context_.teardown->enter(state);
  }

 private:
  Communicator& world() { return communicators_->find("world", StreamId::kReduce); }
  void agreed(const std::function<void()>& phase) { run_agreed(world(), reduce_.view(), context_.placement, phase); }

  void build() {
    const JobConfig& config = context_.config;
    const int logical_rank = context_.placement.logical_of_world.at(static_cast<std::size_t>(context_.world_rank));
    spec_ = frozen_model(config.model, context_.num_threads);
    const std::vector<UnitSpec> units = make_units(spec_, config.fsdp.wrap);
    const ShardGroups groups = shard_groups(config.fsdp, context_.mesh, logical_rank);
    schedule_ = schedule_options(config.fsdp, context_.batch, groups);
    check_program(units, groups);
    Allocator& allocator = context_.device.allocator();
    if (MemoryResource* shared = context_.factory.shared_memory(); shared != nullptr && context_.mesh.dp > 1)
      allocator.set_resource(MemoryCategory::kParameters, *shared);  // what peers read when they gather
    model_ = std::make_unique<ShardedModel>(spec_, units, groups, allocator, compute_.view());
    check_ = std::make_unique<ProgramCheck>(*model_, context_.mesh.num_ranks());
    observer_->set_check(check_.get());
  }

  // Of a token in the longest context: calls match, and a rank has the memory.
  void check_program(const std::vector<UnitSpec>& units, const ShardGroups& groups) {
    const ModelConfig& config = context_.config.model;
    std::size_t longest = 0;
    for (const auto& prompt : context_.prompts) longest = std::max(longest, prompt.size());
    // num_tokens may be any number.
    const std::int64_t more = std::min(context_.options.num_tokens, config.seq_len);
    const std::int64_t length = std::min(static_cast<std::int64_t>(longest) + more, config.seq_len);
    const ModelSpec cut = frozen_model(sampler_model(config, length), context_.num_threads);
    const StepProgram program = build_token_program(cut, units, token_schedule(schedule_));
    Plan plan;
    plan.mesh = context_.mesh;
    const ProofResult proof = prove_program(plan, program);
    require(proof.ok(), fmt::format("{}: {}", proof.text, fmt::join(proof.counterexample, "; ")));
    const Ledger ledger = make_ledger(program, cut, units, groups);
    const MemoryBudget& budget = context_.device_memory;
    if (budget.bytes == 0 || ledger.peak() <= budget.bytes) return;
    throw DeviceError(fmt::format("memory: a rank needs {} (at {}) and has {} ({})", format_bytes(ledger.peak()),
                                  peak_place(program, ledger), format_bytes(budget.bytes), budget.source),
                      "more ranks on other hosts, each holds a part of the parameters");
  }

  void continue_prompt(Sampler& sampler, std::size_t index) {
    SamplerOptions options = context_.options;
    options.on_token = [&](std::uint32_t token) {
      if (context_.on_token) context_.on_token(index, token);
    };
    std::exception_ptr not_finite;
    try {
      sampler.generate(context_.prompts[index], options, step_);
      if (context_.on_end) context_.on_end(index);
    } catch (const NonFiniteError&) {
      not_finite = std::current_exception();  // of logits that every rank has: all come here, and leave in order
    }
    agreed([&] {
      if (not_finite) std::rethrow_exception(not_finite);
    });
  }

  const GenerateContext& context_;
  // Destroyed in reverse: what uses a stream or a communicator goes before it.
  std::shared_ptr<ProgramObserver> observer_ = std::make_shared<ProgramObserver>();
  std::unique_ptr<CommunicatorSet> communicators_;
  Stream compute_, gather_, reduce_;
  ModelSpec spec_;
  ScheduleOptions schedule_;
  std::unique_ptr<ShardedModel> model_;
  std::unique_ptr<ProgramCheck> check_;
  std::int64_t step_ = 0;
};

void run_generator(const GenerateContext& context) {
  Generator generator(context);
  try {
    generator.run();
    generator.leave();
    generator.enter(TeardownState::kCommunicators);
  } catch (const AgreedError&) {
    const std::exception_ptr error = std::current_exception();
    try {
      generator.leave();
      generator.enter(TeardownState::kCommunicators);
    } catch (...) {
      if (context.on_fatal) context.on_fatal(error);
    }
    throw;
  } catch (...) {
    // Peers do not know: nothing may be torn down here, since that would wait for them.
    if (context.on_fatal) context.on_fatal(std::current_exception());
    throw;
  }
}

}  // namespace

void generate(const GenerateContext& context) {
  // The factory may go before the device does: nothing of its shared memory stays behind.
  const auto give_back = [&] { context.device.allocator().use_own_resource(); };
  try {
    run_generator(context);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

}  // namespace tessera
