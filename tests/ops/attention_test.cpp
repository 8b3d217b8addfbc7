#include "runtime/ops/attention.h"

#include "runtime/base/error.h"
#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

// Shapes with several key blocks, partial query blocks, shared kv heads and odd head dimensions.
const AttentionShape kShapes[] = {{1, 1, 1, 1, 1},  {2, 7, 2, 2, 8},   {1, 16, 4, 2, 16},  {2, 17, 3, 1, 15},
                                  {1, 64, 2, 1, 7}, {1, 67, 4, 4, 17}, {1, 130, 2, 2, 64}, {1, 300, 2, 1, 20}};

struct Inputs {
  explicit Inputs(const AttentionShape& s, float scale = 1.0F)
      : q(random_tensor({s.batch * s.seq, s.query_heads * s.head_dim}, 1, 2.0F * scale)),
        k(random_tensor({s.batch * s.seq, s.kv_heads * s.head_dim}, 2, 2.0F)),
        v(random_tensor({s.batch * s.seq, s.kv_heads * s.head_dim}, 3)),
        dout(random_tensor({s.batch * s.seq, s.query_heads * s.head_dim}, 4)) {}
  Tensor q, k, v, dout;
};

struct Outputs {
  explicit Outputs(const AttentionShape& s)
      : o({s.batch * s.seq, s.query_heads * s.head_dim}, 9.0F),
        lse({s.batch, s.query_heads, s.seq}, 9.0F),
        dq({s.batch * s.seq, s.query_heads * s.head_dim}, 9.0F),
        dk({s.batch * s.seq, s.kv_heads * s.head_dim}, 9.0F),
        dv({s.batch * s.seq, s.kv_heads * s.head_dim}, 9.0F) {}
  Tensor o, lse, dq, dk, dv;
};

Outputs run(StreamView stream, const AttentionShape& shape, const Inputs& in) {
  Outputs out(shape);
  attention_forward(
      stream,
      {.shape = shape, .q = in.q.view(), .k = in.k.view(), .v = in.v.view(), .o = out.o.view(), .lse = out.lse.view()});
  attention_backward(stream, {.shape = shape,
                              .q = in.q.view(),
                              .k = in.k.view(),
                              .v = in.v.view(),
                              .o = out.o.view(),
                              .lse = out.lse.view(),
                              .dout = in.dout.view(),
                              .dq = out.dq.view(),
                              .dk = out.dk.view(),
                              .dv = out.dv.view()});
  return out;
}

// Attention with all scores at once, in double; also its gradient, row by row from the derivative of softmax.
struct Reference {
  Doubles o, lse, dq, dk, dv;
};
Reference reference(const AttentionShape& s, const Doubles& q, const Doubles& k, const Doubles& v,
                    const Doubles& dout) {
  Reference r{Doubles(q.size()), Doubles(static_cast<std::size_t>(s.batch * s.query_heads * s.seq)), Doubles(q.size()),
              Doubles(k.size()), Doubles(v.size())};
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.query_heads; ++h) {
      const std::int64_t kv = h / (s.query_heads / s.kv_heads);
      const auto qi = [&](std::int64_t t, std::int64_t d) {
        return static_cast<std::size_t>(((b * s.seq + t) * s.query_heads + h) * s.head_dim + d);
      };
      const auto ki = [&](std::int64_t t, std::int64_t d) {
        return static_cast<std::size_t>(((b * s.seq + t) * s.kv_heads + kv) * s.head_dim + d);
      };
      for (std::int64_t t = 0; t < s.seq; ++t) {
        Doubles p(static_cast<std::size_t>(t + 1));
        double sum = 0.0;
        for (std::int64_t j = 0; j <= t; ++j) {
          double score = 0.0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) score += q[qi(t, d)] * k[ki(j, d)];
          p[static_cast<std::size_t>(j)] = std::exp(score * scale);
          sum += p[static_cast<std::size_t>(j)];
        }
        r.lse[static_cast<std::size_t>((b * s.query_heads + h) * s.seq + t)] = std::log(sum);
        Doubles dp(p.size());
        double mean_dp = 0.0;
        for (std::int64_t j = 0; j <= t; ++j) {
          const auto jj = static_cast<std::size_t>(j);
          p[jj] /= sum;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            r.o[qi(t, d)] += p[jj] * v[ki(j, d)];
            r.dv[ki(j, d)] += p[jj] * dout[qi(t, d)];
            dp[jj] += dout[qi(t, d)] * v[ki(j, d)];
          }
          mean_dp += p[jj] * dp[jj];
        }
        for (std::int64_t j = 0; j <= t; ++j) {
          const double ds = p[static_cast<std::size_t>(j)] * (dp[static_cast<std::size_t>(j)] - mean_dp) * scale;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            r.dq[qi(t, d)] += ds * k[ki(j, d)];
            r.dk[ki(j, d)] += ds * q[qi(t, d)];
          }
        }
      }
    }
  }
  return r;
}

TEST(Attention, ForwardAndBackwardAgreeWithAllScoresAtOnce) {
  const Cpu cpu;
  for (const AttentionShape& shape : kShapes) {
    const Inputs in(shape);
    const Outputs out = run(cpu.stream(), shape, in);
    const Reference r = reference(shape, to_doubles(in.q), to_doubles(in.k), to_doubles(in.v), to_doubles(in.dout));
    expect_close(out.o.data, r.o, 2e-6, "o");
    expect_close(out.lse.data, r.lse, 2e-6, "lse");
    expect_close(out.dq.data, r.dq, 1e-5, "dq");
    expect_close(out.dk.data, r.dk, 1e-5, "dk");
    expect_close(out.dv.data, r.dv, 1e-5, "dv");
  }
}

TEST(Attention, GradientsAgreeWithFiniteDifferences) {
  const Cpu cpu;
  const AttentionShape shape{.batch = 2, .seq = 5, .query_heads = 4, .kv_heads = 2, .head_dim = 3};
  const Inputs in(shape);
  const Outputs out = run(cpu.stream(), shape, in);
  const Doubles q = to_doubles(in.q);
  const Doubles k = to_doubles(in.k);
  const Doubles v = to_doubles(in.v);
  const Doubles dout = to_doubles(in.dout);
  const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& c) {
    return weighted_sum(reference(shape, a, b, c, dout).o, in.dout);
  };
  expect_close(out.dq.data, numeric_gradient([&](const Doubles& x) { return loss(x, k, v); }, q), 2e-6, "dq");
  expect_close(out.dk.data, numeric_gradient([&](const Doubles& x) { return loss(q, x, v); }, k), 2e-6, "dk");
  expect_close(out.dv.data, numeric_gradient([&](const Doubles& x) { return loss(q, k, x); }, v), 2e-6, "dv");
}

TEST(Attention, TheFirstPositionSeesItselfAlone) {
  const Cpu cpu;
  const AttentionShape shape{.batch = 2, .seq = 9, .query_heads = 2, .kv_heads = 2, .head_dim = 5};
  const Inputs in(shape);
  const Outputs out = run(cpu.stream(), shape, in);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t c = 0; c < 10; ++c) EXPECT_EQ(out.o.at(b * 9, c), in.v.at(b * 9, c));
  }
}

TEST(Attention, EqualKeysGiveTheMeanOfTheValuesSoFar) {
  const Cpu cpu;
  const AttentionShape shape{.batch = 1, .seq = 270, .query_heads = 1, .kv_heads = 1, .head_dim = 4};
  Inputs in(shape);
  std::fill(in.k.data.begin(), in.k.data.end(), 1.0F);
  for (std::int64_t t = 0; t < 270; ++t) {
    for (std::int64_t d = 0; d < 4; ++d) in.v.at(t, d) = static_cast<float>(t);
  }
  const Outputs out = run(cpu.stream(), shape, in);
  for (std::int64_t t = 0; t < 270; ++t) ASSERT_NEAR(out.o.at(t, 2), 0.5 * static_cast<double>(t), 1e-4);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const Cpu cpu;
  const AttentionShape shape{.batch = 1, .seq = 300, .query_heads = 1, .kv_heads = 1, .head_dim = 16};
  const Inputs in(shape, 1000.0F);
  const Outputs out = run(cpu.stream(), shape, in);
  for (const Tensor* tensor : {&out.o, &out.lse, &out.dq, &out.dk, &out.dv}) {
    for (const float value : tensor->data) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(Attention, BitsDoNotDependOnThreads) {
  const AttentionShape shape{.batch = 3, .seq = 150, .query_heads = 4, .kv_heads = 2, .head_dim = 24};
  const Inputs in(shape);
  const Cpu one(1);
  const Outputs first = run(one.stream(), shape, in);
  for (const int threads : {2, 3, 4}) {
    const Cpu cpu(threads);
    const Outputs out = run(cpu.stream(), shape, in);
    EXPECT_TRUE(same_bits(out.o.data, first.o.data));
    EXPECT_TRUE(same_bits(out.lse.data, first.lse.data));
    EXPECT_TRUE(same_bits(out.dq.data, first.dq.data));
    EXPECT_TRUE(same_bits(out.dk.data, first.dk.data));
    EXPECT_TRUE(same_bits(out.dv.data, first.dv.data));
  }
}

// Columns [first, first + width) of rows [row, row + rows).
Tensor part_of(const Tensor& tensor, std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t width) {
  Tensor part({rows, width});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < width; ++c) part.at(r, c) = tensor.at(row + r, first + c);
  }
  return part;
}

TEST(Attention, BitsDoNotDependOnTheHeadsAndSequencesNextToThem) {
  const Cpu cpu;
  const AttentionShape shape{.batch = 2, .seq = 77, .query_heads = 6, .kv_heads = 3, .head_dim = 20};
  const Inputs in(shape);
  const Outputs whole = run(cpu.stream(), shape, in);
  // Sequence 1, kv head 2 with its query heads 4 and 5, alone.
  const AttentionShape alone{.batch = 1, .seq = 77, .query_heads = 2, .kv_heads = 1, .head_dim = 20};
  Inputs part(alone);
  part.q = part_of(in.q, 77, 77, 80, 40);
  part.k = part_of(in.k, 77, 77, 40, 20);
  part.v = part_of(in.v, 77, 77, 40, 20);
  part.dout = part_of(in.dout, 77, 77, 80, 40);
  const Outputs out = run(cpu.stream(), alone, part);
  EXPECT_TRUE(same_bits(out.o.data, part_of(whole.o, 77, 77, 80, 40).data));
  EXPECT_TRUE(same_bits(out.dq.data, part_of(whole.dq, 77, 77, 80, 40).data));
  EXPECT_TRUE(same_bits(out.dk.data, part_of(whole.dk, 77, 77, 40, 20).data));
  EXPECT_TRUE(same_bits(out.dv.data, part_of(whole.dv, 77, 77, 40, 20).data));
}

TEST(Attention, EvaluationNeedsNoLse) {
  const Cpu cpu;
  const AttentionShape shape{.batch = 1, .seq = 20, .query_heads = 2, .kv_heads = 1, .head_dim = 8};
  const Inputs in(shape);
  const Outputs with = run(cpu.stream(), shape, in);
  Outputs without(shape);
  attention_forward(cpu.stream(),
                    {.shape = shape, .q = in.q.view(), .k = in.k.view(), .v = in.v.view(), .o = without.o.view()});
  EXPECT_TRUE(same_bits(with.o.data, without.o.data));
}

TEST(Attention, ScratchIsWhatTheLedgerWasTold) {
  const AttentionShape shape{.batch = 1, .seq = 100, .query_heads = 4, .kv_heads = 2, .head_dim = 24};
  const Inputs in(shape);
  Cpu cpu(1);
  run(cpu.stream(), shape, in);
  EXPECT_EQ(cpu.device().allocator().stats().total.allocated_peak, attention_workspace_bytes(shape, 1, true));
  EXPECT_EQ(attention_workspace_bytes(shape, 2, true), 2 * attention_workspace_bytes(shape, 1, true));
  EXPECT_EQ(attention_workspace_bytes(shape, 8, true), 2 * attention_workspace_bytes(shape, 1, true));  // two kv heads
  EXPECT_LT(attention_workspace_bytes(shape, 1, false), attention_workspace_bytes(shape, 1, true));
}

TEST(Attention, HeadsThatDoNotShareEvenlyAreRefused) {
  const Cpu cpu;
  const AttentionShape shape{.batch = 1, .seq = 2, .query_heads = 3, .kv_heads = 2, .head_dim = 4};
  const Inputs in(shape);
  Outputs out(shape);
  EXPECT_THROW(
      attention_forward(cpu.stream(),
                        {.shape = shape, .q = in.q.view(), .k = in.k.view(), .v = in.v.view(), .o = out.o.view()}),
      InternalError);
}

struct Tables {
  Tables(std::int64_t seq, std::int64_t head_dim) : cosines({seq, head_dim / 2}), sines({seq, head_dim / 2}) {
    make_rope_tables(seq, head_dim, {.theta = 10000.0}, cosines.data.data(), sines.data.data());
  }
  Tensor cosines, sines;
};

TEST(Rope, TurnsPairsByPositionTimesFrequency) {
  const Cpu cpu;
  for (const std::int64_t head_dim : {2, 14, 32, 34, 64}) {
    const Tables tables(11, head_dim);
    const Tensor x = random_tensor({22, 3 * head_dim}, 5);
    Tensor y = x;
    const auto turn = [&](bool inverse) {
      rope(cpu.stream(), {.batch = 2,
                          .seq = 11,
                          .heads = 3,
                          .head_dim = head_dim,
                          .x = y.view(),
                          .cos_table = tables.cosines.view(),
                          .sin_table = tables.sines.view(),
                          .inverse = inverse});
    };
    turn(false);
    for (std::int64_t row = 0; row < 22; ++row) {
      for (std::int64_t h = 0; h < 3; ++h) {
        for (std::int64_t i = 0; i < head_dim / 2; ++i) {
          const std::int64_t first = h * head_dim + i;
          const std::int64_t second = first + head_dim / 2;
          const double angle = static_cast<double>(row % 11) *
                               std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
          ASSERT_NEAR(y.at(row, first), x.at(row, first) * std::cos(angle) - x.at(row, second) * std::sin(angle), 1e-6);
          ASSERT_NEAR(y.at(row, second), x.at(row, second) * std::cos(angle) + x.at(row, first) * std::sin(angle),
                      1e-6);
        }
      }
    }
    for (std::int64_t c = 0; c < 3 * head_dim; ++c) EXPECT_EQ(y.at(0, c), x.at(0, c));  // position 0 does not turn
    turn(true);
    expect_close(y.data, to_doubles(x), 1e-6, "turned back");
  }
}

}  // namespace
}  // namespace tessera::ops
