#include "checkpoint/writer.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/folders.h"
#include "checkpoint/publish.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::string encode_saved(const Manifest& manifest, const std::vector<std::string>& warnings) {
  return Json{manifest.bytes(), manifest.root_hash, manifest.state_hash, warnings}.dump();
}

SavedCheckpoint decode_saved(const std::string& text) {
  const Json json = Json::parse(text);
  return {.bytes = json[0], .root_hash = json[1], .state_hash = json[2], .warnings = json[3]};
}

std::future<std::string> done_already(std::string result) {
  std::promise<std::string> promise;
  promise.set_value(std::move(result));
  return promise.get_future();
}

}  // namespace

std::size_t staging_bytes(const std::vector<SourceSlice>& slices) {
  return plan_shard(slices).bytes;
}

CheckpointWriter::CheckpointWriter(FileSystem& files, RankExchange& ranks, Options options, Buffer staging)
    : files_(files), ranks_(ranks), options_(std::move(options)), staging_(std::move(staging)) {
  if (staging_) std::memset(staging_.data(), 0, staging_.size_bytes());
}

void CheckpointWriter::begin(SaveRequest request) {
  require(state_ == State::kIdle, "a save begins when the one before it is over");
  request_ = std::move(request);
  plan_ = plan_shard(request_.slices);
  require(plan_.bytes <= staging_.size_bytes(), "staging memory holds the slices of every save");
  const Placement placement = place(request_.step, plan_.bytes);
  folder_ = agree(ranks_, [&] {
    return ranks_.rank() == 0 ? open_save(files_, options_.directory, request_.step, placement.total_bytes) : "";
  })[0];
  fill_image(plan_, request_.slices, staging_.span<std::byte>().first(plan_.bytes));
  for (SourceSlice& slice : request_.slices) slice.data = nullptr;  // the caller's again
  start_writing(plan_.bytes > 0 ? shard_file_name(placement.index, placement.num_shards) : "");
  state_ = State::kWriting;
}

CheckpointWriter::Placement CheckpointWriter::place(std::int64_t step, std::uint64_t bytes) {
  Placement placement;
  const std::vector<std::string> texts = ranks_.exchange(Json{step, bytes}.dump());
  for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
    const Json json = Json::parse(texts[static_cast<std::size_t>(rank)]);
    require(json[0].get<std::int64_t>() == step, "all ranks save the same step");
    const auto rank_bytes = json[1].get<std::uint64_t>();
    placement.total_bytes += rank_bytes;
    if (rank_bytes == 0) continue;
    if (rank < ranks_.rank()) ++placement.index;
    ++placement.num_shards;
  }
  return placement;
}

void CheckpointWriter::start_writing(const std::string& file_name) {
  if (file_name.empty()) {
    work_ = done_already(encode_report({}));
    return;
  }
  work_ = std::async(std::launch::async, [this, file_name] {
    return encode_report(write_shard(files_, folder_, file_name, plan_, request_.slices,
                                     staging_.span<const std::byte>().first(plan_.bytes)));
  });
}

void CheckpointWriter::certify(const ResumeCertificate& certificate) {
  require(state_ == State::kWriting, "a certificate comes before the manifest is written");
  request_.training.certificate = certificate;
}

bool CheckpointWriter::ready() const {
  return state_ != State::kIdle && work_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::optional<SavedCheckpoint> CheckpointWriter::advance() {
  require(state_ != State::kIdle, "a save is under way");
  const std::vector<std::string> outcomes = agree_on_work();
  if (state_ == State::kWriting) {
    start_publishing(outcomes);
    state_ = State::kPublishing;
    return std::nullopt;
  }
  SavedCheckpoint saved = decode_saved(outcomes[0]);
  saved.step = request_.step;
  saved.folder = fmt::format("{}/{}", options_.directory, step_folder_name(saved.step));
  state_ = State::kIdle;
  return saved;
}

SavedCheckpoint CheckpointWriter::wait() {
  for (;;) {
    if (std::optional<SavedCheckpoint> saved = advance()) return *saved;
  }
}

void CheckpointWriter::start_publishing(const std::vector<std::string>& reports) {
  if (ranks_.rank() != 0) {
    work_ = done_already("");
    return;
  }
  work_ = std::async(std::launch::async, [this, reports] {
    std::vector<ShardReport> decoded;
    for (const std::string& report : reports) decoded.push_back(decode_report(report));
    Manifest manifest{
        .run_id = options_.run_id, .step = request_.step, .model = request_.model, .training = request_.training};
    std::vector<std::string> warnings;
    manifest = publish(files_, folder_, std::move(manifest), decoded, options_.retention, warnings);
    return encode_saved(manifest, warnings);
  });
}

std::vector<std::string> CheckpointWriter::agree_on_work() {
  try {
    return agree(ranks_, [this] { return work_.get(); });
  } catch (const CheckpointError&) {
    abandon();
    throw;
  }
}

void CheckpointWriter::abandon() {
  state_ = State::kIdle;
  if (ranks_.rank() != 0) return;
  try {
    files_.remove(folder_);
  } catch (const CheckpointError& error) {
    // The next start removes it; the error that ended the save is the one to hear about.
    log::warn(fmt::format("an unfinished save stays: {}", error.line()));
  }
}

}  // namespace tessera
