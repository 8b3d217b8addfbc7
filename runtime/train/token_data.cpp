#include "runtime/train/token_data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/train/file_glob.h"
#include "runtime/train/foreign_format.h"
#include "runtime/train/token_format.h"

namespace tessera {
namespace {

constexpr std::string_view kExpectedTokens =
    "expected an llm.c token file (20240520 u16 or 20240801 u32) or raw little-endian u16 tokens";
constexpr std::string_view kPrepareHint = "tessera data prepare turns text into token files";
// Files up to this size have every id checked when a dataset opens; the windows of larger ones are checked as they are
// read.
constexpr std::int64_t kFullScanBytes = std::int64_t{1} << 30;
// Read at a time where a whole file is looked at.
constexpr std::int64_t kBlockTokens = std::int64_t{1} << 16;
constexpr std::size_t kSampleBytes = std::size_t{16} << 10;

enum class Width { kU16, kU32 };

// One file stays open per token file, and sets of a few thousand exist: the soft limit, 1024 by default, is not the system's last word.
int open_raising_the_limit(const std::string& path) {
  // O_NONBLOCK: opening a pipe would wait for its writer.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const int descriptor = ::open(path.c_str(), kFlags);
  rlimit limit{};
  if (descriptor >= 0 || errno != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return descriptor;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return ::open(path.c_str(), kFlags);
}

// A regular file, read by position. Not mapped: what is cut off a mapped file while it is read ends the process with SIGBUS, or reads as zeros.
class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path), descriptor_(open_raising_the_limit(path)) {
    if (descriptor_ < 0) throw DataError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
    struct stat info {};
    const bool known = ::fstat(descriptor_, &info) == 0;
    size_ = known ? static_cast<std::size_t>(info.st_size) : 0;
    device_ = info.st_dev;
    inode_ = info.st_ino;
    std::string problem, hint;
    if (known && S_ISDIR(info.st_mode)) {
      problem = "is a directory";
      hint = "name its files, e.g. a glob DIR/train-*.bin";
    } else if (!known || !S_ISREG(info.st_mode)) {
      problem = "is not a regular file";
    } else if (size_ == 0) {
      problem = "is empty (0 bytes)";
    }
    if (problem.empty()) return;
    ::close(descriptor_);
    throw DataError(fmt::format("{}: {}; {}", path, problem, kExpectedTokens), hint);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::size_t size() const { return size_; }
  std::pair<std::uint64_t, std::uint64_t> identity() const { return {device_, inode_}; }

  void read(std::size_t offset, void* out, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got =
          ::pread(descriptor_, static_cast<std::byte*>(out) + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        throw DataError(fmt::format("{}: cannot read at byte {}: {}", path_, offset + done, std::strerror(errno)));
      }
      if (got == 0) {
        struct stat now {};
        ::fstat(descriptor_, &now);
        throw DataError(fmt::format("{}: has {} bytes, and had {} when it was opened", path_, now.st_size, size_),
                        "a file must not change while a run reads it");
      }
      done += static_cast<std::size_t>(got);
    }
  }
  std::vector<std::byte> part(std::size_t offset, std::size_t bytes) const {
    std::vector<std::byte> result(std::min(bytes, size_ - offset));
    read(offset, result.data(), result.size());
    return result;
  }

 private:
  std::string path_;
  int descriptor_;
  std::size_t size_ = 0;
  std::uint64_t device_ = 0, inode_ = 0;
};

struct Layout {
  Width width = Width::kU16;
  std::size_t offset = 0;  // bytes before the first token
  std::int64_t num_tokens = 0;
  std::string format;
};

Layout read_header(const InputFile& file, Width width) {
  const std::string& path = file.path();
  const bool narrow = width == Width::kU16;
  if (file.size() < kTokenHeaderBytes) {
    throw DataError(
        fmt::format("{}: {} bytes, expected an llm.c header of {} bytes", path, file.size(), kTokenHeaderBytes));
  }
  std::array<std::int32_t, 3> header{};
  file.read(0, header.data(), sizeof header);
  const std::int32_t version = narrow ? kTokenVersionU16 : kTokenVersionU32;
  if (header[1] != version) {
    throw DataError(
        fmt::format("{}: llm.c header {} has version {}, expected {}", path, header[0], header[1], version));
  }
  const std::int64_t payload = static_cast<std::int64_t>(file.size() - kTokenHeaderBytes);
  const std::int64_t token_bytes = narrow ? 2 : 4;
  if (header[2] < 0 || header[2] * token_bytes != payload) {
    throw DataError(fmt::format("{}: the header counts {} tokens ({} bytes), found {} bytes after it", path, header[2],
                                header[2] * token_bytes, payload),
                    "the file was cut short or added to; copy or write it again");
  }
  return {width, kTokenHeaderBytes, header[2], narrow ? "llm.c u16" : "llm.c u32"};
}

// True where each token's upper half is zero in 32-bit words: 32 or 64-bit integers, not u16.
bool looks_like_wider_integers(std::span<const std::byte> bytes, std::size_t file_size) {
  constexpr std::size_t fewest = 64;
  const std::size_t words = bytes.size() / 4;
  if (words < fewest || file_size % 4 != 0) return false;
  bool any_low = false;
  for (std::size_t i = 0; i < words; ++i) {
    std::array<std::uint16_t, 2> halves{};
    std::memcpy(halves.data(), bytes.data() + 4 * i, 4);
    if (halves[1] != 0) return false;
    any_low |= halves[0] != 0;
  }
  return any_low;
}

Layout detect(const InputFile& file) {
  const std::string& path = file.path();
  const std::vector<std::byte> start = file.part(0, kSampleBytes);
  const std::span<const std::byte> bytes(start);
  if (bytes.size() >= 4) {
    std::int32_t magic = 0;
    std::memcpy(&magic, bytes.data(), sizeof magic);
    if (magic == kTokenMagicU16) return read_header(file, Width::kU16);
    if (magic == kTokenMagicU32) return read_header(file, Width::kU32);
    const auto swapped = static_cast<std::int32_t>(__builtin_bswap32(static_cast<std::uint32_t>(magic)));
    if (swapped == kTokenMagicU16 || swapped == kTokenMagicU32) {
      throw DataError(fmt::format("{}: llm.c header {} is big-endian; expected little-endian", path, swapped));
    }
  }
  if (const auto name = foreign_format(bytes.first(std::min<std::size_t>(bytes.size(), 512)))) {
    throw DataError(fmt::format("{}: is {}; {}", path, *name, kExpectedTokens), std::string(kPrepareHint));
  }
  std::error_code ignored;
  const std::filesystem::path index = std::filesystem::path(path).replace_extension(".idx");
  if (index != std::filesystem::path(path) && std::filesystem::is_regular_file(index, ignored)) {
    throw DataError(fmt::format("{}: is part of a Megatron dataset ({} lies beside it); {}", path,
                                index.filename().string(), kExpectedTokens));
  }
  if (looks_like_text(bytes) && looks_like_text(file.part(file.size() / 2, kSampleBytes))) {
    throw DataError(fmt::format("{}: looks like text; {}", path, kExpectedTokens), std::string(kPrepareHint));
  }
  if (file.size() % 2 != 0) {
    throw DataError(fmt::format("{}: {} bytes without a header is an odd number; raw u16 tokens take 2 bytes each",
                                path, file.size()),
                    "the file was cut short, or is not token data");
  }
  if (looks_like_wider_integers(bytes, file.size())) {
    throw DataError(fmt::format("{}: looks like 32 or 64-bit integers without a header; {}", path, kExpectedTokens));
  }
  return {Width::kU16, 0, static_cast<std::int64_t>(file.size() / 2), "raw u16"};
}

}  // namespace

struct TokenFile::State {
  explicit State(const std::string& name) : file(name), layout(detect(file)) {}

  InputFile file;
  Layout layout;
};

TokenFile TokenFile::open(const std::string& path) {
  TokenFile file;
  file.state_ = std::make_shared<const State>(path);
  return file;
}

const std::string& TokenFile::path() const {
  return state_->file.path();
}
std::int64_t TokenFile::num_tokens() const {
  return state_->layout.num_tokens;
}
std::string TokenFile::format() const {
  return state_->layout.format;
}
std::int64_t TokenFile::num_bytes() const {
  return static_cast<std::int64_t>(state_->file.size());
}
std::pair<std::uint64_t, std::uint64_t> TokenFile::identity() const {
  return state_->file.identity();
}

void TokenFile::read(std::int64_t first, std::span<std::uint32_t> tokens) const {
  require(first >= 0 && first + static_cast<std::int64_t>(tokens.size()) <= num_tokens(),
          "TokenFile::read: positions inside the file");
  const auto place = [&](std::size_t token_bytes) {
    return state_->layout.offset + static_cast<std::size_t>(first) * token_bytes;
  };
  if (state_->layout.width == Width::kU32) {
    state_->file.read(place(sizeof(std::uint32_t)), tokens.data(), tokens.size_bytes());
    return;
  }
  std::vector<std::uint16_t> narrow(tokens.size());
  state_->file.read(place(sizeof(std::uint16_t)), narrow.data(), narrow.size() * sizeof(std::uint16_t));
  std::copy(narrow.begin(), narrow.end(), tokens.begin());
}

std::uint32_t TokenFile::operator[](std::int64_t i) const {
  std::uint32_t token = 0;
  read(i, {&token, 1});
  return token;
}

void TokenFile::check_ids(std::int64_t first, std::span<const std::uint32_t> tokens, std::int64_t vocab_size) const {
  const auto limit = static_cast<std::uint64_t>(std::max<std::int64_t>(vocab_size, 0));
  const auto outside = std::find_if(tokens.begin(), tokens.end(), [&](std::uint32_t id) { return id >= limit; });
  if (outside == tokens.end()) return;
  throw DataError(fmt::format("{}: token id {} at position {} is outside model.vocab_size {}", path(), *outside,
                              first + (outside - tokens.begin()), vocab_size),
                  state_->layout.offset == 0
                      ? "the file has no header: is it little-endian u16, made with this job's tokenizer?"
                      : "use the tokenizer that made the file, or a larger vocab_size");
}

void TokenFile::for_blocks(const std::function<void(std::int64_t, std::span<const std::uint32_t>)>& visit) const {
  std::vector<std::uint32_t> block(static_cast<std::size_t>(std::min(num_tokens(), kBlockTokens)));
  for (std::int64_t first = 0; first < num_tokens(); first += kBlockTokens) {
    const auto count = static_cast<std::size_t>(std::min(kBlockTokens, num_tokens() - first));
    const std::span<std::uint32_t> tokens = std::span(block).first(count);
    read(first, tokens);
    visit(first, tokens);
  }
}

struct TokenDataset::State {
  struct FileWindows {
    std::int64_t first_window = 0;  // among the windows of its source
    std::int64_t num_windows = 0;
    std::size_t file = 0;
  };
  struct Source {
    std::int64_t num_windows = 0, first_visit = 0, num_visits = 0;
    std::string path;  // as given
    double weight = 1.0;
    std::vector<FileWindows> files;  // those with at least one window
  };

  std::int64_t seq_len = 0, vocab_size = 0;
  std::int64_t num_visits = 0, num_tokens = 0;
  std::int64_t num_dropped = 0;  // tokens at the ends of files
  std::vector<TokenFile> files;
  std::vector<std::size_t> source_of_file;
  std::vector<Source> sources;

  static std::int64_t windows_of(const TokenFile& file, std::int64_t seq_len) {
    return file.num_tokens() > 0 ? (file.num_tokens() - 1) / seq_len : 0;
  }
  // DataError where it has no window, or its weight leaves none.
  void add_source(const DataSource& given, std::vector<TokenFile> its_files);

  // Window of its source that visit `v` of num_visits reads: whole passes first, then the rest spread evenly over the
  // source.
  static std::int64_t window_of_visit(const Source& source, std::int64_t v) {
    const std::int64_t passes = source.num_visits / source.num_windows;
    if (v < passes * source.num_windows) return v % source.num_windows;
    const std::int64_t rest = source.num_visits % source.num_windows;
    const std::int64_t r = v - passes * source.num_windows;
    return static_cast<std::int64_t>(static_cast<__int128>(r) * source.num_windows / rest);
  }
};

void TokenDataset::State::add_source(const DataSource& given, std::vector<TokenFile> its_files) {
  Source source;
  source.path = given.path;
  source.weight = given.weight;
  source.first_visit = num_visits;
  std::int64_t most = 0;  // tokens of the source's longest file
  for (TokenFile& file : its_files) {
    const std::int64_t tokens = file.num_tokens();
    const std::int64_t windows = windows_of(file, seq_len);
    if (windows > 0) source.files.push_back({source.num_windows, windows, files.size()});
    most = std::max(most, tokens);
    source.num_windows += windows;
    num_tokens += tokens;
    num_dropped += tokens - (windows > 0 ? windows * seq_len + 1 : 0);
    source_of_file.push_back(sources.size());
    files.push_back(std::move(file));
  }
  if (source.num_windows == 0) {
    throw DataError(
        fmt::format("{}: {} tokens, need {} (seq_len {} + 1) for one window", given.path, most, seq_len + 1, seq_len));
  }
  // The small term keeps a weight such as 0.29 of 100 windows at 29: the product is 28.999999999999996 in double.
  source.num_visits =
      static_cast<std::int64_t>(std::floor(given.weight * static_cast<double>(source.num_windows) + 1e-9));
  if (source.num_visits == 0) {
    throw DataError(fmt::format("{}: weight {} of {} windows is less than one window per epoch", given.path,
                                given.weight, source.num_windows));
  }
  num_visits += source.num_visits;
  sources.push_back(std::move(source));
}

TokenDataset::TokenDataset(const std::vector<DataSource>& sources, std::int64_t seq_len, std::int64_t vocab_size) {
  require(seq_len > 0 && vocab_size > 0, "TokenDataset: seq_len and vocab_size are positive");
  auto state = std::make_shared<State>();
  state->seq_len = seq_len;
  state->vocab_size = vocab_size;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> seen;  // file on disk -> the pattern that named it
  for (const DataSource& given : sources) {
    if (!(given.weight > 0) || !std::isfinite(given.weight)) {
      throw DataError(fmt::format("{}: weight {}, expected a number above 0", given.path, given.weight));
    }
    std::vector<TokenFile> files;
    for (const std::string& path : expand_files(given.path)) {
      TokenFile file = TokenFile::open(path);
      const auto [place, is_new] = seen.emplace(file.identity(), given.path);
      if (!is_new) {
        throw DataError(fmt::format("{}: named twice, by '{}' and '{}'", path, place->second, given.path),
                        "to read a file more than once per epoch give its source a weight");
      }
      if (file.num_bytes() <= kFullScanBytes) {
        file.for_blocks(
            [&](std::int64_t first, std::span<const std::uint32_t> ids) { file.check_ids(first, ids, vocab_size); });
      }
      files.push_back(std::move(file));
    }
    state->add_source(given, std::move(files));
  }
  for (const TokenFile& file : state->files) {
    if (State::windows_of(file, seq_len) > 0) continue;
    log::warn(
        fmt::format("{}: {} tokens, need {} for one window: not used", file.path(), file.num_tokens(), seq_len + 1));
  }
  log::info(
      fmt::format("data: {} files, {} tokens, {} sequences of {} per epoch; {} tokens at the ends of files dropped",
                  state->files.size(), state->num_tokens, state->num_visits, seq_len, state->num_dropped));
  state_ = std::move(state);
}

TokenDataset TokenDataset::only(const std::vector<std::size_t>& files) const {
  auto state = std::make_shared<State>();
  state->seq_len = state_->seq_len;
  state->vocab_size = state_->vocab_size;
  for (std::size_t s = 0; s < state_->sources.size(); ++s) {
    std::vector<TokenFile> kept;
    for (const std::size_t file : files) {
      if (state_->source_of_file.at(file) == s) kept.push_back(state_->files[file]);
    }
    const State::Source& source = state_->sources[s];
    if (!kept.empty()) state->add_source({source.path, source.weight}, std::move(kept));
  }
  return TokenDataset(std::shared_ptr<const State>(std::move(state)));
}

std::vector<DataFile> TokenDataset::file_list() const {
  std::vector<DataFile> list;
  for (std::size_t i = 0; i < state_->files.size(); ++i) {
    const TokenFile& file = state_->files[i];
    list.push_back({.name = std::filesystem::path(file.path()).filename().string(),
                    .tokens = file.num_tokens(),
                    .format = file.format(),
                    .source = static_cast<std::int64_t>(state_->source_of_file[i])});
  }
  return list;
}

std::int64_t TokenDataset::num_sequences() const {
  return state_->num_visits;
}
std::int64_t TokenDataset::num_tokens() const {
  return state_->num_tokens;
}
const std::vector<TokenFile>& TokenDataset::files() const {
  return state_->files;
}

void TokenDataset::read(std::int64_t sequence, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const {
  const State& state = *state_;
  require(0 <= sequence && sequence < state.num_visits, "TokenDataset::read: sequence inside the epoch");
  require(static_cast<std::int64_t>(inputs.size()) == state.seq_len && inputs.size() == targets.size(),
          "TokenDataset::read: seq_len inputs and targets");
  const auto source =
      std::prev(std::upper_bound(state.sources.begin(), state.sources.end(), sequence,
                                 [](std::int64_t s, const State::Source& x) { return s < x.first_visit; }));
  const std::int64_t window = State::window_of_visit(*source, sequence - source->first_visit);
  const auto place =
      std::prev(std::upper_bound(source->files.begin(), source->files.end(), window,
                                 [](std::int64_t w, const State::FileWindows& x) { return w < x.first_window; }));
  const TokenFile& file = state.files[place->file];
  const std::int64_t first = (window - place->first_window) * state.seq_len;
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(state.seq_len) + 1);
  file.read(first, tokens);
  file.check_ids(first, tokens, state.vocab_size);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<std::int32_t>(tokens[i]);
    targets[i] = static_cast<std::int32_t>(tokens[i + 1]);
  }
}

std::uint64_t TokenDataset::digest() const {
  std::uint64_t digest = hash_string("token dataset");
  for (const State::Source& source : state_->sources) {
    digest = hash_string(fmt::format("{} {}", source.weight, source.num_visits), digest);
  }
  for (const TokenFile& file : state_->files) {
    // The name without its folder: the same files on another cluster are the same data.
    digest = hash_string(fmt::format("{}\n{}\n{}", std::filesystem::path(file.path()).filename().string(),
                                     file.num_tokens(), file.format()),
                         digest);
  }
  return digest;
}

}  // namespace tessera
