#include "runtime/train/trace_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runtime/base/error.h"
#include "runtime/train/atomic_file.h"
#include "runtime/train/gzip_file.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;
// A file is a line that opens it, an event a line, and this.
constexpr std::string_view kLastLine = "]}";

int thread_id(StreamId stream) {
  return static_cast<int>(stream) + 1;
}

// Names of hosts come from elsewhere: the replacement character stands for what is no UTF-8.
std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// The format counts in microseconds; three decimals keep the nanoseconds.
std::string micros(std::int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns / 1000), std::abs(ns % 1000));
}
double micros_value(std::int64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}
std::int64_t nanos(const OrderedJson& micros) {
  return std::llround(micros.get<double>() * 1000.0);
}

std::string opening_line(const OrderedJson& header) {
  return fmt::format(R"({{"displayTimeUnit":"ns","tessera":{},"traceEvents":[)", text_of(header));
}

// --- writing

OrderedJson header_json(const TraceHeader& header) {
  return {{"version", kVersion},
          {"run", header.run},
          {"rank", header.rank},
          {"world_size", header.world_size},
          {"dp", header.at.dp},
          {"pp", header.at.pp},
          {"tp", header.at.tp},
          {"host", header.host},
          {"steps", OrderedJson::array({header.steps.first, header.steps.last})},
          {"dropped_steps", header.num_dropped_steps},
          {"origin_ns", header.origin_ns},
          {"clock_offset_ns", header.clock.offset_ns},
          {"clock_uncertainty_ns", header.clock.uncertainty_ns}};
}

std::string metadata_event(std::string_view name, int rank, int thread, const OrderedJson& args) {
  return text_of({{"name", name}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", args}});
}

// What viewers need to name and order processes and threads.
std::vector<std::string> metadata_events(const RankTrace& trace) {
  const TraceHeader& header = trace.header;
  const std::string process = fmt::format("rank {} (dp {}, pp {}, tp {}) {}", header.rank, header.at.dp, header.at.pp,
                                          header.at.tp, header.host);
  std::vector<std::string> events = {
      metadata_event("process_name", header.rank, thread_id(StreamId::kCompute), {{"name", process}}),
      metadata_event("process_sort_index", header.rank, thread_id(StreamId::kCompute), {{"sort_index", header.rank}})};
  std::set<StreamId> streams;
  for (const TraceSpan& span : trace.spans) streams.insert(span.stream);
  for (const StreamId stream : streams) {
    const int thread = thread_id(stream);
    events.push_back(metadata_event("thread_name", header.rank, thread, {{"name", name_of(stream)}}));
    events.push_back(metadata_event("thread_sort_index", header.rank, thread, {{"sort_index", thread}}));
  }
  return events;
}

OrderedJson args_of(const TraceSpan& span) {
  OrderedJson args = {{"step", span.step}};
  if (!span.phase.empty()) args["phase"] = span.phase;
  if (!span.what.empty()) args["unit"] = span.what;
  if (span.micro_batch >= 0) args["micro_batch"] = span.micro_batch;
  if (span.trace_class == TraceClass::kCommunication) {
    args["op"] = name_of(span.call.op);
    args["group"] = span.call.group;
    args["group_size"] = span.call.group_size;
    args["sequence"] = span.call.sequence;
    args["bytes"] = span.call.bytes;
    args["queued_us"] = micros_value(span.call.queued_ns);
    args["waited_us"] = micros_value(span.call.waited_ns);
  }
  return args;
}

std::string complete_event(std::string_view name, TraceClass trace_class, int rank, StreamId stream,
                           std::int64_t begin_ns, std::int64_t duration_ns, const OrderedJson& args) {
  return fmt::format(R"({{"name":{},"cat":"{}","ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"args":{}}})",
                     text_of(std::string(name)), name_of(trace_class), rank, thread_id(stream), micros(begin_ns),
                     micros(duration_ns), text_of(args));
}

class EventWriter {
 public:
  EventWriter(AtomicFile& file, int rank) : file_(file), rank_(rank) {}

  void add(const TraceSpan& span) {
    add(complete_event(span.name, span.trace_class, rank_, span.stream, span.begin_ns, span.end_ns - span.begin_ns,
                       args_of(span)));
    if (span.call.waited_ns > 0) {
      add(complete_event(kPeerWaitName, TraceClass::kWait, rank_, span.stream, span.begin_ns, span.call.waited_ns,
                         {{"step", span.step}}));
    }
  }
  void add(const std::string& event) {
    file_.append(first_ ? "\n" : ",\n");
    file_.append(event);
    first_ = false;
  }

 private:
  AtomicFile& file_;
  int rank_;
  bool first_ = true;
};

// --- reading

constexpr int kMaxWorldSize = 1 << 20;
constexpr std::int64_t kLongestNs = std::int64_t{1} << 61;  // 73 years; sums of two stay in range

std::optional<TraceClass> class_named(std::string_view name) {
  for (int i = 0; i < kNumTraceClasses; ++i) {
    if (name_of(static_cast<TraceClass>(i)) == name) return static_cast<TraceClass>(i);
  }
  return std::nullopt;
}

CollectiveOp op_named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(CollectiveOp::kBarrier); ++i) {
    if (name_of(static_cast<CollectiveOp>(i)) == name) return static_cast<CollectiveOp>(i);
  }
  throw DataError(fmt::format("unknown op {}", name));
}

TraceHeader header_of(const OrderedJson& json) {
  if (const int version = json.at("version"); version != kVersion) {
    throw DataError(fmt::format("version {}, this program reads {}", version, kVersion));
  }
  const OrderedJson& steps = json.at("steps");
  TraceHeader header = {
      .run = json.at("run"),
      .rank = json.at("rank"),
      .world_size = json.at("world_size"),
      .at = {.dp = json.at("dp"), .pp = json.at("pp"), .tp = json.at("tp")},
      .host = json.at("host"),
      .steps = {.first = steps.at(0), .last = steps.at(1)},
      .num_dropped_steps = json.at("dropped_steps"),
      .origin_ns = json.at("origin_ns"),
      .clock = {.offset_ns = json.at("clock_offset_ns"), .uncertainty_ns = json.at("clock_uncertainty_ns")}};
  if (header.world_size < 1 || header.world_size > kMaxWorldSize || header.rank < 0 || header.rank >= header.world_size)
    throw DataError(fmt::format("rank {} of {}", header.rank, header.world_size));
  return header;
}

// Nothing where the event is for viewers alone.
std::optional<TraceSpan> span_of(const OrderedJson& event) {
  if (event.at("ph") != "X" || event.at("name") == kPeerWaitName) return std::nullopt;
  const std::optional<TraceClass> trace_class = class_named(event.at("cat").get<std::string>());
  if (!trace_class) throw DataError("unknown category " + event.at("cat").get<std::string>());
  const OrderedJson& args = event.at("args");
  TraceSpan span = {.trace_class = *trace_class,
                    .stream = static_cast<StreamId>(event.at("tid").get<int>() - 1),
                    .name = event.at("name"),
                    .what = args.value("unit", ""),
                    .phase = args.value("phase", ""),
                    .step = args.at("step"),
                    .micro_batch = args.value("micro_batch", -1),
                    .begin_ns = nanos(event.at("ts"))};
  const std::int64_t duration = nanos(event.at("dur"));
  if (span.begin_ns < 0 || duration < 0 || duration > kLongestNs || span.begin_ns > kLongestNs || span.step < 0)
    throw DataError("a time or step that no run has");
  span.end_ns = span.begin_ns + duration;
  if (*trace_class == TraceClass::kCommunication) {
    span.call = {.op = op_named(args.at("op").get<std::string>()),
                 .group = args.at("group"),
                 .group_size = args.at("group_size"),
                 .sequence = args.at("sequence"),
                 .bytes = args.at("bytes"),
                 .queued_ns = nanos(args.at("queued_us")),
                 .waited_ns = nanos(args.at("waited_us"))};
  }
  return span;
}

// The lines of a rank's file. What is wrong with one is a DataError that names the file and the line.
class RankFile {
 public:
  explicit RankFile(const std::string& path) : path_(path), file_(path) {
    if (!file_) throw DataError(fmt::format("{}: {}", path, std::strerror(errno)));
    std::getline(file_, line_);
    checked([&] { header_ = OrderedJson::parse(line_ + std::string(kLastLine)).at("tessera"); });
  }
  const OrderedJson& header() const { return header_; }

  // The next event's text; false behind the last one.
  bool next(std::string& event) {
    ++number_;
    if (!std::getline(file_, event))
      throw DataError(fmt::format("{}: damaged: ends after line {}", path_, number_ - 1));
    if (event == kLastLine) {
      if (file_.peek() != std::ifstream::traits_type::eof())
        throw DataError(fmt::format("{}: damaged: goes on after line {}", path_, number_));
      return false;
    }
    if (event.ends_with(',')) event.pop_back();
    return true;
  }

  template <typename Body>
  void checked(Body body) {
    try {
      body();
    } catch (const std::exception& error) {
      throw DataError(fmt::format("{}: damaged: line {}: {}", path_, number_, error.what()));
    }
  }

 private:
  std::string path_, line_;
  std::ifstream file_;
  OrderedJson header_;
  std::int64_t number_ = 1;
};

}  // namespace

void write_rank_trace(const std::string& path, const RankTrace& trace) {
  AtomicFile file(path, FileOf::kRun);
  file.append(opening_line(header_json(trace.header)));
  EventWriter writer(file, trace.header.rank);
  for (const std::string& event : metadata_events(trace)) writer.add(event);
  for (const TraceSpan& span : trace.spans) writer.add(span);
  file.append(fmt::format("\n{}\n", kLastLine));
  file.commit();
}

RankTrace read_rank_trace(const std::string& path) {
  RankFile file(path);
  RankTrace trace;
  file.checked([&] { trace.header = header_of(file.header()); });
  for (std::string event; file.next(event);) {
    file.checked([&] {
      if (std::optional<TraceSpan> span = span_of(OrderedJson::parse(event))) trace.spans.push_back(*std::move(span));
    });
  }
  return trace;
}

void merge_traces(const std::vector<std::string>& rank_paths, const std::string& path) {
  OrderedJson ranks = OrderedJson::array();
  for (const std::string& each : rank_paths) ranks.push_back(RankFile(each).header());
  require(!ranks.empty(), "a trace is of at least one rank");
  OrderedJson header = OrderedJson::object();
  for (const char* key : {"version", "run", "world_size", "steps", "origin_ns"}) header[key] = ranks[0].at(key);
  header["ranks"] = std::move(ranks);

  GzipFile merged(path, FileOf::kRun);
  merged.append(opening_line(header));
  bool first = true;
  for (const std::string& each : rank_paths) {
    RankFile file(each);
    for (std::string event; file.next(event); first = false) {
      merged.append(first ? "\n" : ",\n");
      merged.append(event);
    }
  }
  merged.append(fmt::format("\n{}\n", kLastLine));
  merged.commit();
}

}  // namespace tessera
