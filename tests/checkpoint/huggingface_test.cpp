// Weights in the files of others: which tensor is which parameter, and what is wrong with a file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/float_formats.h"
#include "checkpoint/huggingface_reader.h"
#include "checkpoint/huggingface_writer.h"
#include "checkpoint/new_folder.h"
#include "checkpoint/streamed_shard.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/safetensors_file.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr auto kGpt2 = HuggingFaceLayout::kGpt2;
constexpr auto kLlama = HuggingFaceLayout::kLlama;

// Element i of the flattened tensor is first + i.
std::vector<float> counting(std::int64_t count, float first) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

// The parameters of one block that are told apart: a square matrix that is fused, its biases, a table that is tied or not.
std::vector<ParameterSpec> gpt2_parameters(bool tied) {
  std::vector<ParameterSpec> parameters = {{.name = "embedding.token.weight", .shape = {3, 2}, .tied = tied},
                                           {.name = "block.0.attention.query.weight", .shape = {2, 2}},
                                           {.name = "block.0.attention.query.bias", .shape = {2}},
                                           {.name = "block.0.attention.key.weight", .shape = {2, 2}},
                                           {.name = "block.0.attention.key.bias", .shape = {2}},
                                           {.name = "block.0.attention.value.weight", .shape = {2, 2}},
                                           {.name = "block.0.attention.value.bias", .shape = {2}}};
  if (!tied) parameters.push_back({.name = "head.weight", .shape = {3, 2}});
  return parameters;
}

test::RawTensors gpt2_tensors() {
  return {{"wte.weight", test::raw_tensor({3, 2}, counting(6, 100))},
          {"h.0.attn.c_attn.weight", test::raw_tensor({2, 6}, counting(12, 0))},
          {"h.0.attn.c_attn.bias", test::raw_tensor({6}, counting(6, 50))}};
}

class HuggingFaceWeights : public ::testing::Test {
 protected:
  void write(const test::RawTensors& tensors) { test::write_safetensors(folder() + "/model.safetensors", tensors); }
  std::string folder() const { return directory_.path().string(); }
  HuggingFaceReader open(const std::vector<ParameterSpec>& parameters, HuggingFaceLayout layout = kGpt2) {
    return HuggingFaceReader::open(*files_, folder(), layout, parameters);
  }
  static std::vector<float> read(const HuggingFaceReader& reader, const std::string& name, std::int64_t count,
                                 std::int64_t offset = 0) {
    std::vector<float> values(static_cast<std::size_t>(count));
    reader.read({{name, offset, count, values.data()}});
    return values;
  }
  // What opening ends with, without the folder.
  std::string refusal(const std::vector<ParameterSpec>& parameters, HuggingFaceLayout layout = kGpt2) {
    try {
      open(parameters, layout).check_tied_head();
    } catch (const CheckpointError& error) {
      std::string text = error.what();
      for (std::size_t at; (at = text.find(folder())) != std::string::npos;) text.replace(at, folder().size(), "DIR");
      return text;
    }
    return "";
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

TEST_F(HuggingFaceWeights, Gpt2StoresMatricesTheOtherWayRoundAndThreeInOne) {
  write(gpt2_tensors());
  const HuggingFaceReader reader = open(gpt2_parameters(true));
  // [in 2, 3 · out 2] = 0 1 | 2 3 | 4 5 and 6 7 | 8 9 | 10 11: query's first output has 0 of input 0 and 6 of input 1.
  EXPECT_EQ(read(reader, "block.0.attention.query.weight", 4), (std::vector<float>{0, 6, 1, 7}));
  EXPECT_EQ(read(reader, "block.0.attention.key.weight", 4), (std::vector<float>{2, 8, 3, 9}));
  EXPECT_EQ(read(reader, "block.0.attention.value.weight", 4), (std::vector<float>{4, 10, 5, 11}));
  EXPECT_EQ(read(reader, "block.0.attention.key.bias", 2), (std::vector<float>{52, 53}));
  EXPECT_EQ(read(reader, "embedding.token.weight", 6), counting(6, 100));
}

TEST_F(HuggingFaceWeights, ASliceIsThePartOfTheWhole) {
  const std::int64_t out = 5, in = 37;  // more inputs than are turned at once
  const std::vector<ParameterSpec> parameters = {{.name = "block.7.feed_forward.up.weight", .shape = {out, in}}};
  write({{"transformer.h.7.mlp.c_fc.weight", test::raw_tensor({in, out}, counting(out * in, 1))}});
  const HuggingFaceReader reader = open(parameters);
  const std::vector<float> whole = read(reader, parameters[0].name, out * in);
  for (std::int64_t o = 0; o < out; ++o)
    for (std::int64_t i = 0; i < in; ++i)
      ASSERT_EQ(whole[static_cast<std::size_t>(o * in + i)], static_cast<float>(1 + i * out + o));
  for (std::int64_t offset = 0; offset < out * in; offset += 11)
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{36}, out * in - offset}) {
      if (count > out * in - offset) continue;
      EXPECT_EQ(read(reader, parameters[0].name, count, offset),
                std::vector<float>(whole.begin() + offset, whole.begin() + offset + count));
    }
}

TEST_F(HuggingFaceWeights, NamesWithAndWithoutThePrefixAndBuffersOfOldFilesAreRead) {
  test::RawTensors tensors;
  for (const auto& [name, tensor] : gpt2_tensors()) tensors["transformer." + name] = tensor;
  tensors["transformer.h.0.attn.bias"] = test::raw_tensor({1, 1, 2, 2}, counting(4, 0));
  tensors["transformer.h.0.attn.masked_bias"] = test::raw_tensor({}, {-1e4F});
  write(tensors);
  EXPECT_EQ(read(open(gpt2_parameters(true)), "block.0.attention.query.weight", 4), (std::vector<float>{0, 6, 1, 7}));
}

TEST_F(HuggingFaceWeights, LlamaHasOneTensorForEachParameter) {
  const std::vector<ParameterSpec> parameters = {{.name = "block.11.attention.query.weight", .shape = {4, 2}},
                                                 {.name = "block.11.feed_forward.gate.weight", .shape = {3, 2}},
                                                 {.name = "final_norm.weight", .shape = {2}},
                                                 {.name = "head.weight", .shape = {3, 2}}};
  write({{"model.layers.11.self_attn.q_proj.weight", test::raw_tensor({4, 2}, counting(8, 0))},
         {"model.layers.11.mlp.gate_proj.weight", test::raw_tensor({3, 2}, counting(6, 10))},
         {"model.norm.weight", test::raw_tensor({2}, counting(2, 20))},
         {"model.layers.11.self_attn.rotary_emb.inv_freq", test::raw_tensor({1}, {1})},
         {"lm_head.weight", test::raw_tensor({3, 2}, counting(6, 30))}});
  const HuggingFaceReader reader = open(parameters, kLlama);
  EXPECT_EQ(read(reader, "block.11.attention.query.weight", 8), counting(8, 0));
  EXPECT_EQ(read(reader, "block.11.feed_forward.gate.weight", 6), counting(6, 10));
  EXPECT_EQ(read(reader, "final_norm.weight", 2), counting(2, 20));
  EXPECT_EQ(read(reader, "head.weight", 4, 2), counting(4, 32));
}

// Case G4: {tied, untied} × {head present, absent}, with a head of other values.
TEST_F(HuggingFaceWeights, NoHeadIsDroppedOrLeftUninitialisedInSilence) {
  test::RawTensors tensors = gpt2_tensors();
  write(tensors);
  EXPECT_EQ(refusal(gpt2_parameters(true)), "");
  EXPECT_EQ(refusal(gpt2_parameters(false)), "DIR: lm_head.weight is missing");

  tensors["lm_head.weight"] = test::raw_tensor({3, 2}, counting(6, 200));
  write(tensors);
  EXPECT_EQ(read(open(gpt2_parameters(false)), "head.weight", 6), counting(6, 200));
  EXPECT_EQ(
      refusal(gpt2_parameters(true)),
      "DIR: lm_head.weight holds other values than the embedding, but config.json says tie_word_embeddings: true");
  tensors["lm_head.weight"] = tensors["wte.weight"];
  write(tensors);
  EXPECT_EQ(refusal(gpt2_parameters(true)), "") << "a tied head that was written twice";
  tensors["lm_head.weight"] = test::raw_tensor({2, 3}, counting(6, 100));
  write(tensors);
  EXPECT_EQ(refusal(gpt2_parameters(true)), "DIR: lm_head.weight is [2, 3], expected [3, 2]");

  tensors.erase("wte.weight");
  tensors["lm_head.weight"] = test::raw_tensor({3, 2}, counting(6, 300));
  write(tensors);
  EXPECT_EQ(read(open(gpt2_parameters(true)), "embedding.token.weight", 6), counting(6, 300))
      << "shared memory that was written under the head's name";
  EXPECT_EQ(refusal(gpt2_parameters(false)), "DIR: transformer.wte.weight is missing");
}

TEST_F(HuggingFaceWeights, EverythingThatIsWrongIsNamedAtOnce) {
  test::RawTensors tensors = gpt2_tensors();
  tensors.erase("wte.weight");
  tensors["h.0.attn.c_attn.weight"] = test::raw_tensor({6, 2}, counting(12, 0));
  tensors["h.0.attn.c_attn.bias"].dtype = "I32";
  tensors["score.weight"] = test::raw_tensor({1}, {0});
  write(tensors);
  const std::string text = refusal(gpt2_parameters(true));
  for (const char* part :
       {"transformer.wte.weight is missing", "transformer.h.0.attn.c_attn.weight is [6, 2], expected [2, 6]",
        "transformer.h.0.attn.c_attn.bias is I32, which is not read (F32, F16, BF16)",
        "transformer.score.weight is not known"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// Case G1, of files of others: named errors, whatever a file claims.
TEST_F(HuggingFaceWeights, BrokenFilesAndIndexesAreNamed) {
  const auto parameters = gpt2_parameters(true);
  EXPECT_EQ(refusal(parameters), "DIR: holds neither model.safetensors nor model.safetensors.index.json");
  test::write_text(folder() + "/pytorch_model.bin", "x");
  EXPECT_EQ(refusal(parameters), "pytorch_model.bin: weights are read from safetensors files alone, and DIR has none");
  const std::string path = folder() + "/model.safetensors";
  const auto with_length = [](std::uint64_t length, const std::string& rest) {
    return std::string(reinterpret_cast<const char*>(&length), 8) + rest;
  };
  const std::string start = "DIR/model.safetensors: no safetensors file: ";
  for (const auto& [bytes, rule] : std::vector<std::pair<std::string, std::string>>{
           {"", "0 bytes"},
           {"1234567", "7 bytes"},
           {with_length(~std::uint64_t{0}, "{}"), "a header of 18446744073709551615 bytes"},
           {with_length(100, "{}"), "a header of 100 bytes, 2 are there"},
           {with_length(2, "no"), "the header does not begin with '{'"},
           {with_length(2, "{\xff"), "the header is no "},
           {with_length(100000, "{\"a\":" + std::string(100000 - 5, '[')), "a holds"}}) {
    test::write_text(path, bytes);
    const std::string text = refusal(parameters);
    EXPECT_TRUE(text.starts_with(start)) << text;
    EXPECT_TRUE(text.find(rule) != std::string::npos || rule == "a holds") << text;
  }
  files_->remove(path);

  const std::string index = folder() + "/model.safetensors.index.json";
  const auto with_index = [&](const std::string& text) {
    test::write_text(index, text);
    return refusal(parameters);
  };
  EXPECT_EQ(with_index(""), "DIR/model.safetensors.index.json: no JSON, at byte 1");
  EXPECT_EQ(with_index("{}"),
            "DIR/model.safetensors.index.json: lacks weight_map, an object of tensors and their files");
  EXPECT_EQ(with_index(std::string(1000, '[')), "DIR/model.safetensors.index.json: JSON nested deeper than 4 levels");
  EXPECT_EQ(with_index(R"({"weight_map": {"a": "../secret.safetensors"}})"),
            "DIR/model.safetensors.index.json: a is in \"../secret.safetensors\", expected a *.safetensors file of the "
            "same folder");
  EXPECT_EQ(with_index(R"({"weight_map": {"a": "gone.safetensors"}})"),
            "DIR/gone.safetensors: cannot open: No such file or directory");
  std::string many = R"({"weight_map": {"x": "gone.safetensors")";
  for (int i = 0; i < 140000; ++i) many += fmt::format(R"(,"{}":"gone.safetensors")", i);
  EXPECT_EQ(with_index(many + "}}"), "DIR/gone.safetensors: cannot open: No such file or directory")
      << "as long as one may be";
  EXPECT_EQ(with_index(many + many + "}}").find("DIR/model.safetensors.index.json: "), 0U) << "longer";
  test::write_safetensors(folder() + "/one.safetensors", {{"b", test::raw_tensor({1}, {1})}});
  EXPECT_EQ(with_index(R"({"weight_map": {"a": "one.safetensors"}})"),
            "DIR/model.safetensors.index.json: a is to be in one.safetensors, which does not hold it");
  test::write_safetensors(folder() + "/two.safetensors",
                          {{"b", test::raw_tensor({1}, {1})}, {"c", test::raw_tensor({1}, {1})}});
  EXPECT_EQ(with_index(R"({"weight_map": {"b": "one.safetensors", "c": "two.safetensors"}})"),
            "DIR/two.safetensors: b is in one.safetensors as well");
}

TEST_F(HuggingFaceWeights, WrittenInShardsAndReadAgainAreTheSame) {
  const auto parameters = gpt2_parameters(false);
  std::map<std::string, std::vector<float>> ours;
  float first = 0;
  for (const ParameterSpec& parameter : parameters)
    ours[parameter.name] = counting(parameter.shape.num_elements(), first += 100);
  const auto outputs = huggingface_outputs(kGpt2, parameters);
  ASSERT_EQ(outputs.size(), 4U) << "query, key and value are one";
  EXPECT_EQ(outputs[1].name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(outputs[1].shape, (Extents{2, 6}));
  // 24, 48, 24 and 24 bytes.
  EXPECT_EQ(cut_into_shards(outputs, 72), (std::vector<std::size_t>{2, 2}));
  EXPECT_EQ(cut_into_shards(outputs, 1), (std::vector<std::size_t>{1, 1, 1, 1})) << "each at least one";
  EXPECT_EQ(cut_into_shards(outputs, 1000), (std::vector<std::size_t>{4}));

  for (const std::uint64_t max_bytes : {std::uint64_t{72}, std::uint64_t{1000}}) {
    const std::string folder = directory_ / fmt::format("out{}", max_bytes);
    files_->make_directory(folder);
    const WrittenWeights written =
        write_huggingface_weights(*files_, folder, outputs, max_bytes, [&](const std::vector<TargetSlice>& targets) {
          for (const TargetSlice& target : targets)
            std::copy_n(ours.at(target.name).begin() + target.offset, target.count, target.data);
        });
    EXPECT_EQ(written.bytes, 120U);
    EXPECT_EQ(written.files, max_bytes == 1000 ? std::vector<std::string>{"model.safetensors"}
                                               : (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                                           "model-00002-of-00002.safetensors"}));
    const HuggingFaceReader reader = HuggingFaceReader::open(*files_, folder, kGpt2, parameters);
    for (const auto& [name, values] : ours)
      EXPECT_EQ(read(reader, name, static_cast<std::int64_t>(values.size())), values) << name;
  }
}

TEST(FloatFormats, AreConvertedExactly) {
  EXPECT_EQ(bf16_to_float(0x3f80), 1.0F);
  EXPECT_EQ(bf16_to_float(0xc049), -3.140625F);
  EXPECT_EQ(f16_to_float(0x3c00), 1.0F);
  EXPECT_EQ(f16_to_float(0xc248), -3.140625F);
  EXPECT_EQ(f16_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(f16_to_float(0x0400), 0x1p-14F);
  EXPECT_EQ(f16_to_float(0x0001), 0x1p-24F) << "the smallest there is";
  EXPECT_EQ(f16_to_float(0x83ff), -1023 * 0x1p-24F);
  EXPECT_TRUE(std::signbit(f16_to_float(0x8000)));
  EXPECT_EQ(f16_to_float(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_float(0x7e01)));
}

// What streams and what is written at once are the same bytes, hashes and digests.
TEST(StreamedShard, IsTheShardThatARankWouldWrite) {
  const test::TemporaryDirectory directory;
  const auto files = make_posix_file_system();
  std::vector<float> a = counting(600000, 0), b = counting(7, -3);
  const std::vector<SourceSlice> tensors = {{"b", {7}, 0, 7, b.data()}, {"a", {600, 1000}, 0, 600000, a.data()}};
  const ShardPlan plan = plan_shard(tensors);
  std::vector<std::byte> image(plan.bytes);
  fill_image(plan, tensors, image);
  const ShardReport whole = write_shard(*files, directory.path(), "whole", plan, tensors, image);

  StreamedShard shard(*files, directory.path(), "streamed", tensors);
  shard.append(b);
  for (std::size_t first = 0; first < a.size(); first += 123457)
    shard.append(std::span(a).subspan(first, std::min<std::size_t>(123457, a.size() - first)));
  const ShardReport streamed = shard.finish();
  EXPECT_EQ(streamed.file.bytes, whole.file.bytes);
  EXPECT_EQ(streamed.file.block_hashes, whole.file.block_hashes);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(streamed.slices[i].digests, whole.slices[i].digests);
    EXPECT_EQ(streamed.slices[i].place, whole.slices[i].place);
  }
  EXPECT_EQ(test::read_text(directory / "streamed"), test::read_text(directory / "whole"));
}

TEST(NewFolder, IsThereWholeOrNotAtAll) {
  const test::TemporaryDirectory directory;
  test::FaultyFileSystem files;
  const std::string path = directory / "a/b/c";
  const auto make = [&] {
    NewFolder folder(files, path);
    write_small_file(files, folder.temporary() + "/file", "text");
    folder.commit();
  };
  bool made = false;
  for (std::int64_t call = 1; !made; ++call) {
    files.plan(call, test::FaultKind::kFail);
    try {
      make();
      made = true;
    } catch (const CheckpointError&) {
      if (!files.exists(path)) continue;
      // The rename was through, and what failed is to make it durable.
      EXPECT_EQ(test::read_text(path + "/file"), "text");
      files.remove(path);
    }
  }
  EXPECT_EQ(test::read_text(path + "/file"), "text");
  EXPECT_EQ(files.list(directory / "a/b").size(), 1U) << "nothing else is left";
  EXPECT_THROW(make(), CheckpointError) << "it is there already";
  EXPECT_EQ(test::read_text(path + "/file"), "text");
}

}  // namespace
}  // namespace tessera
