#include "checkpoint/model_check.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"

namespace tessera {
namespace {

std::string refusal(const Fields& model, const std::vector<ExpectedTensor>& tensors,
                    ExtraTensors extra = ExtraTensors::kRefuse) {
  const Manifest manifest{.model = {{"activation", "gelu"}, {"bias", "true"}},
                          .tensors = {{.name = "a", .shape = {2, 3}}, {.name = "a.m", .shape = {2, 3}}}};
  try {
    check_model(manifest, "step-00000005", model, tensors, extra);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

const Fields kModel{{"bias", "true"}, {"activation", "gelu"}};  // order means nothing

TEST(ModelCheck, AcceptsTheModelThatWasSaved) {
  EXPECT_EQ(refusal(kModel, {{"a", {2, 3}}, {"a.m", {2, 3}}}), "");
}

TEST(ModelCheck, RefusesAnotherMeaningOfEqualShapes) {
  EXPECT_EQ(
      refusal({{"activation", "silu"}, {"tie", "false"}}, {{"a", {2, 3}}, {"a.m", {2, 3}}}),
      "step-00000005: another model: activation: gelu saved, silu now; bias: true saved, nothing now; tie: nothing "
      "saved, false now");
}

TEST(ModelCheck, NamesEveryTensorThatDiffers) {
  EXPECT_EQ(
      refusal(kModel, {{"a", {3, 2}}, {"b", {1}}}),
      "step-00000005: another model: a: [2, 3] saved, [3, 2] now; b: not saved, [1] now; a.m: [2, 3] saved, nothing "
      "now");
}

TEST(ModelCheck, WeightsAloneMayBeTaken) {
  EXPECT_EQ(refusal(kModel, {{"a", {2, 3}}}, ExtraTensors::kIgnore), "");
  EXPECT_NE(refusal(kModel, {{"a", {2, 3}}}), "");
}

TEST(ModelCheck, ListsTheFirstOfMany) {
  std::vector<ExpectedTensor> tensors{{"a", {2, 3}}, {"a.m", {2, 3}}};
  for (int i = 0; i < 100; ++i) tensors.push_back({"b" + std::to_string(i), {1}});
  EXPECT_TRUE(refusal(kModel, tensors).ends_with("b11: not saved, [1] now; and 88 more")) << refusal(kModel, tensors);
}

}  // namespace
}  // namespace tessera
