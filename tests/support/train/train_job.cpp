#include "tests/support/train/train_job.h"

#include <fmt/format.h>

#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "parallel/threads/threads_communicator.h"
#include "runtime/base/rng.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/resume.h"
#include "runtime/train/token_data.h"
#include "runtime/train/trainer.h"

namespace tessera::test {

JobConfig model_t(std::int64_t steps) {
  JobConfig c;
  c.run.name = "t";
  c.run.steps = steps;
  c.run.hash_every = 1;
  c.model.num_layers = 2;
  c.model.num_heads = 4;
  c.model.hidden_size = 32;
  c.model.seq_len = 16;
  c.model.vocab_size = 64;
  c.batch.global_batch_size = 8;
  c.batch.micro_batch_size = 2;
  c.reproducibility.lanes = 4;
  return c;
}

JobConfig model_w(std::int64_t steps) {
  JobConfig c = model_t(steps);
  c.run.name = "w";
  c.model.num_heads = 12;
  c.model.hidden_size = 768;
  c.model.intermediate_size = 3072;
  c.model.seq_len = 128;
  c.model.vocab_size = 4099;
  c.batch.global_batch_size = 16;
  c.batch.micro_batch_size = 4;
  return c;
}

JobConfig llama_t(std::int64_t steps) {
  JobConfig c = model_t(steps);
  c.run.name = "llama-t";
  c.model.num_kv_heads = 2;
  c.model.intermediate_size = 88;
  c.model.norm = "rmsnorm";
  c.model.activation = "swiglu";
  c.model.positions = "rope";
  c.model.bias = false;
  c.model.tie_word_embeddings = false;
  return c;
}

std::string write_tokens(const std::string& path, const std::vector<std::uint32_t>& tokens, std::int64_t vocab_size) {
  write_token_file(path, tokens, vocab_size);
  return path;
}

std::string write_tokens(const std::string& path, std::int64_t count, std::int64_t vocab_size, std::uint64_t seed) {
  const CounterRng rng(seed, RandomPurpose::kTest, 0);
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::uint32_t>(rng.below(i, static_cast<std::uint64_t>(vocab_size)));
  return write_tokens(path, tokens, vocab_size);
}

namespace {

// What each rank threw.
std::vector<std::exception_ptr> failures_on_threads(int world, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

void on_threads(int world, const std::function<void(int)>& body) {
  for (const std::exception_ptr& failure : failures_on_threads(world, body)) {
    if (failure) std::rethrow_exception(failure);
  }
}

// Threads are on one host; `fsdp.shard_size: host` takes two neighbours for one, so that groups have replicas.
MeshShape mesh_of(const JobConfig& config, const ResolvedBatch& batch) {
  return make_mesh(config.fsdp, batch, 2);
}

}  // namespace

std::vector<std::string> run_job(const JobConfig& config, int world, int threads, const std::string& run_directory) {
  run_until(config, world, threads, run_directory, {});
  std::ifstream file(run_directory + "/metrics.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

namespace {

// train() of every rank: what each threw, and the codes of those that returned.
std::vector<std::exception_ptr> train_on_threads(const JobConfig& given, int world, int threads,
                                                 const std::string& run_directory, const RankOptions& options,
                                                 std::vector<ExitCode>& codes) {
  const auto factories = make_threads_world(world, {.timeout_seconds = given.collectives.timeout_seconds});
  JobConfig config = given;
  adopt_lanes(config, stored_choices(run_directory, config.checkpoint.resume));
  const ResolvedBatch batch = resolve(config, world);
  codes.assign(static_cast<std::size_t>(world), ExitCode::kDone);
  return failures_on_threads(world, [&](int rank) {
    CpuDevice device({.num_threads = threads});
    codes[static_cast<std::size_t>(rank)] =
        train({.config = config,
               .batch = batch,
               .mesh = mesh_of(config, batch),
               .placement = Placement::canonical(world),
               .world_rank = rank,
               .host = "test",
               .run_directory = run_directory,
               .device_summary = "cpu",
               .num_threads = threads,
               .factory = *factories[static_cast<std::size_t>(rank)],
               .device = device,
               .files = options.files ? options.files(rank) : nullptr,
               .progress = ProgressMode::kQuiet,
               .allowed_changes = options.allowed_changes,
               .stop_requested = [&] { return options.stop_requested && options.stop_requested(rank); }});
  });
}

}  // namespace

ExitCode run_until(const JobConfig& config, int world, int threads, const std::string& run_directory,
                   const std::function<bool(int rank)>& stop_requested) {
  std::vector<ExitCode> codes;
  const RankOptions options{.stop_requested = stop_requested};
  for (const auto& failure : train_on_threads(config, world, threads, run_directory, options, codes)) {
    if (failure) std::rethrow_exception(failure);
  }
  for (const ExitCode code : codes) require(code == codes.front(), "every rank ends with one code");
  return codes.front();
}

std::vector<std::string> run_to_errors(const JobConfig& config, int world, const std::string& run_directory,
                                       const std::vector<std::string>& allowed_changes) {
  return run_with(config, world, run_directory, {.allowed_changes = allowed_changes});
}

std::vector<std::string> run_with(const JobConfig& config, int world, const std::string& run_directory,
                                  const RankOptions& options) {
  std::vector<ExitCode> codes;
  std::vector<std::string> lines;
  for (const auto& failure : train_on_threads(config, world, 1, run_directory, options, codes)) {
    lines.emplace_back();
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const Error& error) {
      lines.back() = fmt::format("{} {}", static_cast<int>(error.exit_code()), error.line());
    } catch (const AgreedError& error) {
      lines.back() = fmt::format("{} {}", static_cast<int>(error.exit_code), error.what());
    }
  }
  return lines;
}

std::vector<std::string> promised_numbers(const std::vector<std::string>& metrics) {
  std::vector<std::string> out;
  for (const std::string& line : metrics) {
    const nlohmann::json event = nlohmann::json::parse(line);
    std::string text = event.value("kind", "step");
    for (const char* key :
         {"step", "loss", "max_loss", "learning_rate", "grad_norm", "tokens", "validation_loss", "state_hash"}) {
      if (event.contains(key)) text += fmt::format(" {}={}", key, event[key].dump());
    }
    out.push_back(text);
  }
  return out;
}

void run_ranks(const JobConfig& config, int world, const std::function<void(RankParts&)>& body) {
  const auto factories = make_threads_world(world);
  const ResolvedBatch batch = resolve(config, world);
  on_threads(world, [&](int rank) {
    CpuDevice device;
    CommunicatorSet communicators(mesh_of(config, batch), *factories[static_cast<std::size_t>(rank)], {});
    const Stream compute = device.create_stream("compute", StreamMode::kCompute);
    const Stream gather = device.create_stream("gather", StreamMode::kQueue);
    const Stream reduce = device.create_stream("reduce", StreamMode::kQueue);
    const ExecutorStreams streams{compute.view(), gather.view(), reduce.view()};
    Plan plan = make_plan(config, batch, mesh_of(config, batch), rank, 1);
    ShardedModel model(plan.model, plan.units, plan.groups, device.allocator(), compute.view());
    model.initialise(config.run.seed, compute.view());
    AdamWOptimizer optimizer(config.optimizer, model, device.allocator(), compute.view());
    GptRunner runner(config.model, config.loss, config.batch.micro_batch_size, device, compute.view());
    Executor executor(model, &optimizer, runner, communicators, device, streams,
                      {.ignore_index = config.loss.ignore_index, .clip_norm = config.optimizer.clip_norm});
    RankParts parts{config, batch, plan, communicators, device, streams, model, optimizer, executor, rank};
    body(parts);
    communicators.find("world", StreamId::kReduce)
        .barrier({.what = "end", .phase = "test"}, reduce.view())
        .synchronize();
  });
}

std::vector<float> RankParts::gather(const std::string& name) {
  for (int u = 0; u < model.num_units(); ++u) {
    for (const int p : model.unit(u).spec().parameters) {
      if (plan.model.parameters[static_cast<std::size_t>(p)].name != name) continue;
      model.unit(u).unshard(communicators.find(plan.groups.shard_group, StreamId::kGather), streams.gather,
                            {.what = name, .phase = "test"});
      model.unit(u).wait_unshard(streams.compute);
      const TensorView view = model.unit(u).parameter(p);
      std::vector<float> values(view.as<float>(), view.as<float>() + view.num_elements());
      model.unit(u).reshard();
      return values;
    }
  }
  throw std::invalid_argument("no parameter " + name);
}

}  // namespace tessera::test
