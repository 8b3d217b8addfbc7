#include "checkpoint/manifest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/logical_digest.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "tests/support/checkpoint/synthetic_state.h"

namespace tessera {
namespace {

void rehash(Manifest& manifest) {
  manifest.root_hash = root_hash(manifest.tensors);
  manifest.state_hash = state_hash(manifest.tensors);
}

Manifest example() {
  Manifest manifest{.run_id = 0xffffffffffffffffULL,
                    .step = 120,
                    .saved_at = 1790000000,
                    .model = test::synthetic_model_fields(),
                    .training = test::synthetic_training(120)};
  manifest.training.certificate =
      ResumeCertificate{.batch_digest = 0x123456789abcdef0ULL, .learning_rate = 0.1, .rng_digest = 1, .loss = 3.25F};
  manifest.files = {{"shard-00000-of-00002.safetensors", (1 << 20) + 1, {0xfffffffffffffffeULL, 2}},
                    {"shard-00001-of-00002.safetensors", 200, {3}}};
  manifest.tensors = {{"a", "F32", {2, 3}, {{0, 64, 0, 4}, {1, 64, 4, 2}}, {0x8000000000000000ULL}},
                      {"b",
                       "F32",
                       {(1 << 18) + 1},
                       {{0, 80, 0, (1 << 18) - 100}, {1, 72, (1 << 18) - 100, 32}, {0, 128, (1 << 18) - 68, 69}},
                       {5, 6}},
                      {"scalar", "F32", {}, {{1, 80, 0, 1}}, {7}}};
  rehash(manifest);
  return manifest;
}

// The message that reading the text ends with; "" where it is read.
std::string refusal(const std::string& text) {
  try {
    decode_manifest(text, "M");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

// With the hash that a text of these lines after the first would have.
std::string with_hash(const std::string& body) {
  return fmt::format("{{\"manifest_hash\": \"{}\",\n{}", hex64(hash_string(body)), body);
}

TEST(Manifest, IsReadAsItWasWritten) {
  const Manifest manifest = example();
  EXPECT_EQ(decode_manifest(encode_manifest(manifest), "M"), manifest);
  Manifest without = manifest;
  without.training.certificate.reset();
  EXPECT_EQ(decode_manifest(encode_manifest(without), "M"), without);
}

TEST(Manifest, WithoutTheFilesOfItsDataIsReadAsOneThatBeganWithThem) {
  Manifest manifest = example();
  const std::string body = encode_manifest(manifest).substr(38);
  const std::size_t begin = body.find(",\"first_batch\""), end = body.find("}", body.find("]", begin));
  ASSERT_LT(end, body.find("\"schedule\""));
  std::string old = body;
  old.erase(begin, end - begin);
  manifest.training.data.first_batch = manifest.training.data.first_epoch = 0;
  manifest.training.data.files.clear();
  EXPECT_EQ(decode_manifest(with_hash(old), "M"), manifest);
}

TEST(Manifest, KeepsNumbersThatAreNone) {
  Manifest manifest = example();
  manifest.training.certificate->loss = std::nan("");
  EXPECT_TRUE(std::isnan(decode_manifest(encode_manifest(manifest), "M").training.certificate->loss));
}

TEST(Manifest, IsJsonWithHashesAsText) {
  const auto json = nlohmann::json::parse(encode_manifest(example()));
  EXPECT_EQ(json["run_id"], "ffffffffffffffff");
  EXPECT_EQ(json["training"]["rng"]["seed"], "8000000000000001");
  EXPECT_EQ(json["files"][0]["block_hashes"], "fffffffffffffffe0000000000000002");
  EXPECT_EQ(json["tensors"][0]["slices"], (nlohmann::json{{0, 64, 0, 4}, {1, 64, 4, 2}}));
}

TEST(Manifest, NoticesEveryFlippedBitAndEveryMissingByte) {
  const std::string good = encode_manifest(example());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      ASSERT_NE(refusal(bytes), "") << "byte " << i << ", bit " << bit;
    }
    ASSERT_NE(refusal(good.substr(0, i)), "") << i;
  }
  EXPECT_NE(refusal(good + "\n"), "");
}

TEST(Manifest, SaysWhatIsWrongWithADocumentOfItsHash) {
  const std::string good = encode_manifest(example());
  const std::string body = good.substr(38);
  EXPECT_EQ(refusal(with_hash(body)), "");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = body;
    text.replace(text.find(from), from.size(), to);
    return refusal(with_hash(text));
  };
  EXPECT_EQ(replaced("\"version\": 1", "\"version\": 2"), "M: version 2, this program reads 1");
  EXPECT_EQ(replaced("tessera-checkpoint", "other"), "M: format other, tessera-checkpoint expected");
  EXPECT_EQ(replaced("\"step\"", "\"stop\""), "M: the manifest lacks step");
  EXPECT_EQ(replaced("\"next_batch\":120", "\"next_batch\":-1"), "M: training.data.next_batch is no count below 2^53");
  EXPECT_EQ(replaced("\"next_batch\":120", "\"next_batch\":9007199254740992"),
            "M: training.data.next_batch is no count below 2^53");
  EXPECT_EQ(replaced("\"first_batch\":60", "\"first_batch\":121"),
            "M: training.data is no cursor: its files come into use after its next batch");
  EXPECT_EQ(replaced("\"tokens\":17", "\"tokens\":null"), "M: training.data.files[1].tokens is no count below 2^53");
  EXPECT_EQ(replaced("\"bytes\":200", "\"bytes\":\"200\""), "M: files[1].bytes is no count below 2^53");
  EXPECT_EQ(replaced("[1,64,4,2]", "[1,64,4]"), "M: tensors[0].slices[1] is no list of four");
  EXPECT_EQ(replaced("\"run_id\": \"ffffffffffffffff\"", "\"run_id\": \"fff\""),
            "M: run_id is no list of hashes of 16 hex digits");
  EXPECT_EQ(replaced("\"model\": {", std::string("\"more\": ") + std::string(100000, '[') + ", \"model\": {"),
            "M: JSON nested deeper than 8 levels");
  // A million would take minutes.
  std::string many = "\"more\": {\"0\": 0";
  for (int i = 1; i < 1'000'000; ++i) many += fmt::format(",\"{}\":0", i);
  EXPECT_EQ(replaced("\"model\": {", many + "}, \"model\": {"), "M: an object of more than 1000 fields");
  EXPECT_TRUE(refusal(with_hash("no JSON")).starts_with("M: no JSON: "));
  EXPECT_EQ(replaced("\"step\"", "\"later\": {\"unknown\": [1]},\n\"step\""), "")
      << "fields of later writers are ignored";
}

TEST(Manifest, RefusesSlicesThatAreNoPartition) {
  const auto broken = [](const std::function<void(Manifest&)>& change) {
    Manifest manifest = example();
    change(manifest);
    rehash(manifest);
    try {
      validate(manifest, "M");
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(broken([](Manifest&) {}), "");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].slices[1].offset = 3; }),
            "M: tensor a: elements 4 to 6 of 6 expected, a slice has 2 from 3 on");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].slices[1].offset = 5; }),
            "M: tensor a: elements 4 to 6 of 6 expected, a slice has 2 from 5 on");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].slices[1].count = 3; }),
            "M: tensor a: elements 4 to 6 of 6 expected, a slice has 3 from 4 on");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].slices.pop_back(); }),
            "M: tensor a: elements from 4 of 6 on are nowhere");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].slices[1].file = 2; }), "M: tensor a: there is no file 2");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].slices[1].file_offset = 193; }),
            "M: tensor a: 2 elements from byte 193 on do not fit shard-00001-of-00002.safetensors of 200 bytes");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].slices[1].file_offset = ~std::uint64_t{0}; }),
            "M: tensor a: 2 elements from byte 18446744073709551615 on do not fit shard-00001-of-00002.safetensors of "
            "200 bytes");
  EXPECT_EQ(broken([](Manifest& m) {
              m.tensors[0].shape = {1LL << 40, 1LL << 40};
            }),
            "M: tensor a: [1099511627776, 1099511627776] is no shape");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].dtype = "BF16"; }),
            "M: tensor a has dtype BF16; version 1 has F32 only");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[1].name = "a"; }), "M: tensor a is not after the one before it");
  EXPECT_EQ(broken([](Manifest& m) { m.tensors[0].block_digests.push_back(1); }),
            "M: tensor a has 2 block digests, 1 expected");
  EXPECT_EQ(broken([](Manifest& m) { m.files[0].block_hashes.pop_back(); }),
            "M: file shard-00000-of-00002.safetensors of 1048577 bytes has 1 block hashes, 2 expected");
  EXPECT_EQ(broken([](Manifest& m) { m.files[1].name = m.files[0].name; }),
            "M: file shard-00000-of-00002.safetensors stands twice");
  EXPECT_EQ(broken([](Manifest& m) { m.files[1].name = "../secret"; }), "M: '../secret' is no file name");
}

TEST(Manifest, RefusesARootThatItsDigestsDoNotGive) {
  Manifest manifest = example();
  ++manifest.root_hash;
  EXPECT_EQ(refusal(encode_manifest(manifest)), "M: root_hash is not that of the block digests");
}

}  // namespace
}  // namespace tessera
