// Tests folding on a tiny checkpoint with six query heads of 16 on three key-value heads.
#include "quantize/source/fold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "io/gguf.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "quantize/file/verify.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/sealed_file.h"
#include "quantize/tiny_checkpoint.h"
#include "threads.h"
#include "walsh/error.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

constexpr int kHidden = TinyCheckpoint::kHidden, kFfn = TinyCheckpoint::kFfn;
constexpr int kHeadDim = 16, kKvHeads = 3, kGroup = 2;
constexpr int kQueryWidth = kHeadDim * kKvHeads * kGroup;

using Vector = std::vector<double>;

std::vector<float> decode(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.rows * t.cols));
  decode_rows(t, 0, t.rows, out.data());
  return out;
}

Vector multiply(const std::vector<float>& w, const Vector& x) {
  Vector y(w.size() / x.size(), 0.0);
  for (size_t r = 0; r < y.size(); ++r)
    for (size_t c = 0; c < x.size(); ++c)
      y[r] += double{w[r * x.size() + c]} * x[c];
  return y;
}

Vector add(Vector a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    a[i] += double{b[i]};
  return a;
}

double worst(const Vector& a, const Vector& b) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(a[i]));
  }
  return difference / largest;
}

class FoldTest : public testing::Test {
 protected:
  FoldTest() {
    tiny_.add("o", {kHidden, kQueryWidth}, 0.05f);
    tiny_.add("o_bias", {kHidden}, 0.3f);
    tiny_.add("v_bias", {kHeadDim * kKvHeads}, 0.3f);
    for (float& g : tiny_.values("norm1"))
      g *= 3 + g;
    tiny_.save();
  }

  ModelPlan plan(bool tied = false) const {
    ModelPlan p = tiny_.plan();
    p.sites = {{"attn", kHidden, "norm1", {"q", "k", "v"}},
               {"o", kQueryWidth, "", {"o"}},
               {"mlp", kHidden, "norm2", {"gate", "up"}},
               {"down", kFfn, "", {"down"}}};
    p.vectors = {"o_bias", "v_bias"};
    ResidualPlan& r = p.residual;
    r.refusal = "";
    r.hidden = kHidden;
    r.head_dim = kHeadDim;
    r.kv_heads = kKvHeads;
    r.head = "head";
    r.norms = {"norm1", "norm2", "final"};
    const auto entry = [&](const char* name, const char* norm) {
      r.tensors.push_back({name, name, norm, Basis::own, Basis::residual, "o"});
    };
    entry("embed", "");
    entry("o_bias", "");
    for (const char* name : {"q", "k"})
      entry(name, "norm1");
    for (const char* name : {"gate", "up"})
      entry(name, "norm2");
    entry("head", "final");
    if (tied) {
      r.tensors.back().source = "embed";
      p.head = "";
      p.ignored = {"head"};
    }
    r.tensors.push_back({"v", "v", "norm1", Basis::heads, Basis::residual, "o"});
    r.tensors.push_back({"v_bias", "v_bias", "", Basis::own, Basis::heads, "o"});
    r.tensors.push_back({"o", "o", "", Basis::residual, Basis::heads, "o"});
    r.tensors.push_back({"down", "down", "", Basis::residual, Basis::own, "o"});
    return p;
  }

  static Recipe recipe(const std::string& type) {
    Recipe recipe;
    recipe.type = &get_format(type);
    recipe.rotate = RotateAt::residual;
    recipe.encode.effort = Effort::fast;
    return recipe;
  }
  std::unique_ptr<Compressor> compressor(const Recipe& recipe, bool tied = false) {
    return std::make_unique<Compressor>(Checkpoint::open(tiny_.path()), plan(tied), recipe, pool_);
  }

  // Computes what the tensors of `source` give from row 5 of the embedding, without the nonlinear
  // parts: queries from the attention's result, and logits from the MLP's.
  Vector function(WeightSource& source) {
    const auto get = [&](const char* name) { return decode(source.load(name)); };
    const auto scaled = [&](Vector x, const char* norm) {
      const std::vector<float> gain = get(norm);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] *= double{gain[i]};
      return x;
    };
    const std::vector<float> embedding = get("embed");
    const Vector x(embedding.begin() + 5 * kHidden, embedding.begin() + 6 * kHidden);
    const Vector v = add(multiply(get("v"), scaled(x, "norm1")), get("v_bias"));
    Vector heads(kQueryWidth);
    for (int i = 0; i < kQueryWidth; ++i) {
      const int head = i / kHeadDim;
      const double weight = 1 + 0.5 * head;  // attention differs between query heads
      heads[static_cast<size_t>(i)] =
          weight * v[static_cast<size_t>(head / kGroup * kHeadDim + i % kHeadDim)];
    }
    const Vector attended = add(multiply(get("o"), heads), get("o_bias"));
    const Vector down = multiply(get("down"), multiply(get("gate"), scaled(attended, "norm2")));
    Vector result = multiply(get("q"), scaled(attended, "norm1"));
    for (const double logit : multiply(get("head"), scaled(down, "final")))
      result.push_back(logit);
    return result;
  }

  // Overwrites the kind of the first rotation under a key of a file.
  static void change_first_kind(const std::string& path, const std::string& key, char from,
                                char to) {
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const size_t at = bytes.find(key);
    ASSERT_NE(at, std::string::npos);
    // The key is followed by its type, the elements' type and their number (8 bytes).
    const size_t kind = at + key.size() + 4 + 4 + 8;
    ASSERT_EQ(bytes[kind], from);
    bytes[kind] = to;
    reseal(bytes);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static std::string refusal_of(const std::string& path) {
    try {
      WalshFile::open(path);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      return e.what();
    }
    return "";
  }

  TinyCheckpoint tiny_{testing::UnitTest::GetInstance()->current_test_info()->name()};
  ThreadPool pool_{test::kThreads};
};

TEST_F(FoldTest, TheFoldedModelIsTheSameFunction) {
  CheckpointSource plain(Checkpoint::open(tiny_.path()), {});
  const Vector expected = function(plain);
  for (const RotationKind kind : {RotationKind::hadamard, RotationKind::qr}) {
    for (const int block : {0, 32}) {
      Recipe r = recipe("f32");
      r.rotation = kind;
      r.block = block;
      EXPECT_LT(worst(expected, function(*compressor(r))), 1e-5) << block;
    }
  }
}

TEST_F(FoldTest, EveryPartIsInAnotherBasis) {
  CheckpointSource plain(Checkpoint::open(tiny_.path()), {});
  auto folded = compressor(recipe("f32"));
  for (const char* name : {"embed", "q", "k", "v", "o", "gate", "up", "down", "head", "o_bias",
                           "v_bias", "norm1", "norm2", "final"}) {
    EXPECT_NE(decode(plain.load(name)), decode(folded->load(name))) << name;
    EXPECT_EQ(folded->load(name).format->name, "f32");
  }
  for (const float gain : decode(folded->load("norm1")))
    EXPECT_EQ(gain, 1.0f);
  Recipe other = recipe("f32");
  other.seed = 43;
  EXPECT_NE(decode(compressor(other)->load("q")), decode(folded->load("q")));
}

TEST_F(FoldTest, HeadsOfOneLayerHaveDifferentMatrices) {
  for (int i = 0; i < kHeadDim; ++i)  // equal values in all heads
    for (int head = 1; head < kKvHeads; ++head)
      tiny_.values("v_bias")[static_cast<size_t>(head * kHeadDim + i)] =
          tiny_.values("v_bias")[static_cast<size_t>(i)];
  tiny_.save();
  const std::vector<float> bias = decode(compressor(recipe("f32"))->load("v_bias"));
  const std::vector<float> first(bias.begin(), bias.begin() + kHeadDim);
  const std::vector<float> second(bias.begin() + kHeadDim, bias.begin() + 2 * kHeadDim);
  EXPECT_NE(first, second);
}

TEST_F(FoldTest, ATiedHeadBecomesATensorOfItsOwn) {
  Recipe r = recipe("tq3");
  r.embed_type = &get_format("tq4");
  auto folded = compressor(r, true);
  ASSERT_TRUE(folded->contains("head"));
  EXPECT_EQ(folded->format_of("head").name, "tq4") << "as the embedding";
  EXPECT_EQ(parse_json(folded->config_json(), "x")["tie_word_embeddings"], false);
  EXPECT_EQ(parse_json(folded->config_json(), "x")["model_type"], "tiny");
  r.head_type = &get_format("q8_0");
  EXPECT_EQ(compressor(r, true)->format_of("head").name, "q8_0");
  // The head has the final gain, the embedding does not.
  auto exact = compressor(recipe("f32"), true);
  const std::vector<float> embedding = tiny_.values("embed");
  for (size_t c = 0; c < kHidden; ++c)
    for (size_t row = 0; row < TinyCheckpoint::kVocab; ++row)
      tiny_.values("head")[row * kHidden + c] = embedding[row * kHidden + c];
  tiny_.save();
  EXPECT_EQ(decode(compressor(recipe("f32"))->load("head")), decode(exact->load("head")));
}

TEST_F(FoldTest, OnlyDownIsRotatedAtRunTime) {
  auto folded = compressor(recipe("tq3"));
  for (const char* name : {"q", "k", "v", "o", "gate", "up"})
    EXPECT_EQ(folded->load(name).rotation[0].kind, RotationKind::none) << name;
  EXPECT_EQ(folded->load("down").rotation[0].kind, RotationKind::hadamard);
  auto two_passes = compressor(recipe("tq4+4"));
  const Tensor q = two_passes->load("q");
  EXPECT_EQ(q.rotation[0].kind, RotationKind::none);
  EXPECT_EQ(q.rotation[1].kind, RotationKind::hadamard) << "a residual needs another basis";
  EXPECT_LT(two_passes->nmse("q"), 3e-4);
}

TEST_F(FoldTest, CodesAreAsGoodAsWithARotationAtRunTime) {
  std::vector<float>& q = tiny_.values("q");  // an outlier channel and a constant offset
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = (q[i] + 0.2f) * (i % kHidden == 3 ? 40.0f : 1.0f);
  tiny_.save();
  for (const char* type : {"itq3_s", "tq3", "tq4", "tc3:h"}) {
    auto folded = compressor(recipe(type));
    Recipe plain = recipe(type);
    plain.rotate = RotateAt::input;
    auto rotated = compressor(plain);
    for (const char* name : {"q", "o", "down"}) {
      folded->load(name);
      rotated->load(name);
      EXPECT_LT(folded->nmse(name), 1.25 * rotated->nmse(name)) << type << " " << name;
    }
  }
}

TEST_F(FoldTest, KeptTypesAreThoseOfTheSourceUnlessADenseTypeIsWider) {
  Recipe r = recipe("bf16");
  auto folded = compressor(r);
  EXPECT_EQ(folded->format_of("q").name, "bf16");
  EXPECT_EQ(folded->format_of("embed").name, "f32") << "the checkpoint is f32";
  EXPECT_EQ(folded->format_of("o_bias").name, "f32");
  r.rules = {parse_ignore("q"), parse_override("k=tq4")};
  EXPECT_EQ(compressor(r)->format_of("q").name, "f32");
  EXPECT_EQ(compressor(r)->format_of("k").name, "tq4");
}

TEST_F(FoldTest, TheFileTellsWhatWasFolded) {
  const std::string path = tiny_.file("out.gguf");
  auto source = compressor(recipe("tq3"));
  quantize_to_file(*source, path, {});
  auto file = WalshFile::open(path);
  ASSERT_TRUE(file->fold().has_value());
  EXPECT_EQ(*file->fold(), (Rotation{RotationKind::hadamard, 1024, 42, true}));
  EXPECT_TRUE(file->folded());
  EXPECT_TRUE(source->folded());
  for (const std::string& name : source->names())
    EXPECT_EQ(decode(file->load(name)), decode(source->load(name))) << name;
  Recipe plain = recipe("tq3");
  plain.rotate = RotateAt::input;
  quantize_to_file(*compressor(plain), path, {});
  EXPECT_FALSE(WalshFile::open(path)->folded());
}

TEST_F(FoldTest, AnUnknownFoldIsRefused) {
  const std::string path = tiny_.file("out.gguf");
  quantize_to_file(*compressor(recipe("tq3")), path, {});
  change_first_kind(path, keys::kFold, 1, 7);
  EXPECT_NE(refusal_of(path).find(keys::kFold), std::string::npos);
}

// The embedding comes first and is dense.
TEST_F(FoldTest, RotatedOutputsOfADenseTensorAreRefused) {
  const std::string path = tiny_.file("out.gguf");
  Recipe r = recipe("tq3");
  r.rotate = RotateAt::both;
  quantize_to_file(*compressor(r), path, {});
  change_first_kind(path, keys::kOutputs, 0, 1);
  EXPECT_NE(refusal_of(path).find("tensor embed"), std::string::npos);
}

TEST_F(FoldTest, TwoSidedCodesHoldRotatedRows) {
  Recipe r = recipe("tq4+4");
  r.rotate = RotateAt::both;
  r.balance = false;
  r.rules = {parse_ignore("up")};
  auto source = compressor(r);
  EXPECT_EQ(source->form_of("up").output.kind, RotationKind::none) << "dense";
  EXPECT_EQ(source->form_of("v").output.kind, RotationKind::none) << "48 rows";
  EXPECT_EQ(source->form_of("head").output.kind, RotationKind::none) << "not a linear layer";
  const Rotation rotation = source->form_of("gate").output;
  EXPECT_EQ(rotation.kind, RotationKind::hadamard);
  EXPECT_NE(rotation, source->form_of("down").output) << "another site";
  EXPECT_EQ(source->load("gate").rotation[0].kind, RotationKind::hadamard) << "inputs as well";
  EXPECT_EQ(source->config_json(),
            CheckpointSource(Checkpoint::open(tiny_.path()), {}).config_json());

  const std::vector<float> rotated = decode(source->load("gate"));
  const Rotator rotator(rotation, kFfn);
  double error = 0, norm = 0;
  for (size_t c = 0; c < kHidden; ++c) {
    std::vector<float> column;
    for (size_t row = 0; row < kFfn; ++row)
      column.push_back(rotated[row * kHidden + c]);
    rotator.invert(column.data());
    for (size_t row = 0; row < kFfn; ++row) {
      const double original = double{tiny_.values("gate")[row * kHidden + c]};
      error += std::pow(double{column[row]} - original, 2);
      norm += original * original;
    }
  }
  EXPECT_LT(error / norm, 3e-4);
}

TEST_F(FoldTest, TheFileTellsWhichOutputsAreRotated) {
  Recipe r = recipe("tq3");
  r.rotate = RotateAt::both;
  auto source = compressor(r);
  quantize_to_file(*source, tiny_.file("out.gguf"), {});
  auto file = WalshFile::open(tiny_.file("out.gguf"));
  EXPECT_FALSE(file->folded());
  CheckpointSource checkpoint(Checkpoint::open(tiny_.path()), {});
  for (const char* name : {"q", "v", "gate", "down", "embed"})
    EXPECT_EQ(file->form_of(name).output, source->form_of(name).output) << name;
  for (const char* name : {"o", "gate", "down"}) {
    const double stored = file->find(name)->nmse;
    EXPECT_GT(stored, 0);
    EXPECT_NEAR(measure_nmse(*file, checkpoint, plan(), name, pool_), stored, 1e-3 * stored);
  }
}

TEST_F(FoldTest, MeasuredErrorEqualsTheStoredOne) {
  quantize_to_file(*compressor(recipe("tq3")), tiny_.file("out.gguf"), {});
  auto file = WalshFile::open(tiny_.file("out.gguf"));
  CheckpointSource checkpoint(Checkpoint::open(tiny_.path()), {});
  for (const char* name : {"q", "v", "o", "down"}) {
    const double stored = file->find(name)->nmse;
    EXPECT_GT(stored, 0);
    EXPECT_NEAR(measure_nmse(*file, checkpoint, plan(), name, pool_), stored, 1e-3 * stored);
  }
}

// The norms of its latents keep gains, and are balanced.
TEST_F(FoldTest, ErrorsOfAModelWithLatentsAreMeasuredWithTheNormsThatKeepTheirGains) {
  const std::string folder = WALSH_TEST_DATA "/models/deepseek-v3-tiny";
  CheckpointSource checkpoint = CheckpointSource::open(folder);
  const ModelPlan latent = make_plan(parse_config(checkpoint.config_json(), folder));
  Compressor source(Checkpoint::open(folder), latent, recipe("tq3"), pool_);
  quantize_to_file(source, tiny_.file("out.gguf"), {});
  auto file = WalshFile::open(tiny_.file("out.gguf"));
  int compared = 0;
  for (const StoredTensor& tensor : file->tensors()) {
    if (!tensor.linear || tensor.nmse == 0) continue;
    EXPECT_NEAR(measure_nmse(*file, checkpoint, latent, tensor.name, pool_), tensor.nmse,
                1e-2 * tensor.nmse)
        << tensor.name;
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

// Rotations were seeded by numbers then: what is stored is right, but what it was made from is not
// known any more.
TEST_F(FoldTest, AnOlderFoldedFileCannotBeMeasured) {
  quantize_to_file(*compressor(recipe("tq3")), tiny_.file("out.gguf"), {});
  std::ifstream in(tiny_.file("out.gguf"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  write_unsealed(bytes, tiny_.file("old.gguf"), 2);
  auto file = WalshFile::open(tiny_.file("old.gguf"));
  EXPECT_EQ(decode(file->load("o")), decode(WalshFile::open(tiny_.file("out.gguf"))->load("o")));
  CheckpointSource checkpoint(Checkpoint::open(tiny_.path()), {});
  try {
    measure_nmse(*file, checkpoint, plan(), "q", pool_);
    FAIL() << "measured against another rotation";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_EQ(e.where(), tiny_.file("old.gguf"));
    EXPECT_NE(e.reason().find("file format version 2"), std::string::npos) << e.what();
  }
}

TEST_F(FoldTest, BytesDoNotDependOnTheThreads) {
  std::string first;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    Compressor source(Checkpoint::open(tiny_.path()), plan(), recipe("tq3"), pool);
    quantize_to_file(source, tiny_.file("out.gguf"), {});
    std::ifstream in(tiny_.file("out.gguf"), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
  }
}

class FoldRefusal : public FoldTest {
 protected:
  Error failure(const Recipe& recipe, const ModelPlan& plan, const char* tensor = nullptr) {
    try {
      Compressor source(Checkpoint::open(tiny_.path()), plan, recipe, pool_);
      if (tensor != nullptr) source.load(tensor);
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << "no error";
    return Error(ErrorCode::internal, "", "");
  }
};

TEST_F(FoldRefusal, ModelsWhoseStreamCannotBeRotatedSayWhy) {
  ModelPlan p = plan();
  p.residual.refusal = "a norm stands behind each block";
  const Error e = failure(recipe("tq3"), p);
  EXPECT_EQ(e.code(), ErrorCode::usage);
  EXPECT_NE(e.reason().find("a norm stands behind each block"), std::string::npos) << e.what();
  EXPECT_EQ(failure(recipe("tq3"), tiny_.plan()).code(), ErrorCode::usage) << "not described";
  Recipe none = recipe("tq3");
  none.rotation = RotationKind::none;
  for (const RotateAt place : {RotateAt::residual, RotateAt::both}) {
    none.rotate = place;
    EXPECT_EQ(failure(none, plan()).code(), ErrorCode::usage);
  }
  EXPECT_THROW(parse_rotate_at("output"), Error);
}

TEST_F(FoldRefusal, BadTensorsAreNamed) {
  tiny_.values("down")[7] = std::numeric_limits<float>::quiet_NaN();
  tiny_.save();
  Error e = failure(recipe("tq3"), plan(), "down");
  EXPECT_EQ(e.code(), ErrorCode::bad_input);
  EXPECT_NE(std::string(e.what()).find("tensor down: NaN at row 0, column 7"), std::string::npos)
      << e.what();
  tiny_.values("down")[7] = 0;
  for (float& w : tiny_.values("q"))
    w = 2e38f;
  tiny_.save();
  e = failure(recipe("f32"), plan(), "q");
  EXPECT_EQ(e.code(), ErrorCode::bad_input);
  EXPECT_NE(std::string(e.what()).find("overflows"), std::string::npos) << e.what();
  ModelPlan p = plan();
  p.residual.kv_heads = 5;  // v has 48 rows
  EXPECT_EQ(failure(recipe("tq3"), p, "v").code(), ErrorCode::bad_input);
  p = plan();
  p.residual.hidden = 64;
  EXPECT_EQ(failure(recipe("tq3"), p, "gate").code(), ErrorCode::bad_input);
}

}  // namespace
}  // namespace walsh
