// What a rank wrote, as the text that travels to the rank that writes the manifest. Both are this program: nothing is checked here.
#include <nlohmann/json.hpp>

#include "checkpoint/hash_list.h"
#include "checkpoint/shard_file.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::vector<std::uint64_t> hashes_of(const Json& text) {
  std::vector<std::uint64_t> hashes;
  require(decode_hashes(text.get<std::string>(), hashes), "hashes of a shard report");
  return hashes;
}

}  // namespace

std::string encode_report(const ShardReport& report) {
  Json slices = Json::array();
  for (const SliceReport& slice : report.slices)
    slices.push_back({slice.name, slice.shape, slice.place.file_offset, slice.place.offset, slice.place.count,
                      encode_hashes(slice.digests)});
  return Json{report.file.name, report.file.bytes, encode_hashes(report.file.block_hashes), slices}.dump();
}

ShardReport decode_report(const std::string& text) {
  const Json json = Json::parse(text);
  ShardReport report{.file = {.name = json[0], .bytes = json[1], .block_hashes = hashes_of(json[2])}};
  for (const Json& slice : json[3])
    report.slices.push_back({.name = slice[0],
                             .shape = slice[1],
                             .place = {.file_offset = slice[2], .offset = slice[3], .count = slice[4]},
                             .digests = hashes_of(slice[5])});
  return report;
}

}  // namespace tessera
