// Tests the path checkpoint -> compressor -> file -> source, on a tiny checkpoint.
#include "quantize/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "io/json.h"
#include "quantize/file/verify.h"
#include "quantize/pipeline/open.h"
#include "quantize/pipeline/resume.h"
#include "quantize/sealed_file.h"
#include "quantize/tiny_pipeline.h"
#include "walsh/error.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

std::vector<float> decode(WeightSource& source, const std::string& name) {
  const Tensor t = source.load(name);
  std::vector<float> out(static_cast<size_t>(t.rows * t.cols));
  decode_rows(t, 0, t.rows, out.data());
  return out;
}

class PipelineTest : public TinyPipeline {
 protected:
  ErrorCode failure(const Recipe& recipe, std::string* text = nullptr) {
    try {
      quantize_to_file(*compressor(recipe), tiny_.file("out.gguf"), {});
    } catch (const Error& e) {
      if (text) *text = e.what();
      return e.code();
    }
    ADD_FAILURE() << "no error";
    return ErrorCode::internal;
  }
};

TEST_F(PipelineTest, FileHoldsWhatTheCompressorGivesForEveryFormat) {
  for (const Format& format : all_formats()) {
    Recipe recipe = recipe_of(std::string(format.name));
    recipe.embed_type = &get_format("tq4");
    auto source = compressor(recipe);
    const std::string path = tiny_.file("out.gguf");
    const uint64_t predicted = predict(*source).file_bytes;
    const QuantizeSummary summary = quantize_to_file(*source, path, {});
    EXPECT_EQ(summary.file_bytes, predicted);
    EXPECT_EQ(std::filesystem::file_size(path), predicted);
    auto file = WalshFile::open(path);
    EXPECT_EQ(file->names(), source->names());
    EXPECT_THROW(file->format_of("none"), Error);
    EXPECT_THROW(source->format_of("none"), Error);
    for (const std::string& name : source->names()) {
      EXPECT_EQ(&file->format_of(name), &source->format_of(name)) << name;
      EXPECT_EQ(decode(*file, name), decode(*source, name)) << format.name << " " << name;
    }
  }
}

void expect_forms(WeightSource& source) {
  for (const std::string& name : source.names()) {
    const StoredForm form = source.form_of(name);
    const Tensor tensor = source.load(name);
    EXPECT_EQ(form.format, tensor.format) << name;
    for (int pass = 0; pass < tensor.format->passes; ++pass)
      EXPECT_EQ(form.rotation[pass], tensor.rotation[pass]) << name;
  }
}

// What nothing computes with has to be refused before anything is read.
TEST_F(PipelineTest, RotationsAreToldBeforeATensorIsRead) {
  for (const char* type : {"tq3", "q4_0", "tq4+2", "f16"}) {
    for (const RotationKind kind : {RotationKind::hadamard, RotationKind::qr, RotationKind::none}) {
      Recipe recipe = recipe_of(type);
      recipe.rotation = kind;
      recipe.head_type = &get_format("tq2");
      expect_forms(*compressor(recipe));
      quantize(recipe);
      const auto file = WalshFile::open(tiny_.file("out.gguf"));
      expect_forms(*file);
      EXPECT_THROW(file->form_of("none"), Error);
    }
  }
}

TEST_F(PipelineTest, BytesDoNotDependOnTheThreads) {
  std::string first;
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    Compressor source(Checkpoint::open(tiny_.path()), tiny_.plan(), recipe_of("itq3_s"), pool);
    quantize_to_file(source, tiny_.file("out.gguf"), {});
    const std::string bytes = slurp(tiny_.file("out.gguf"));
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes == first, true) << threads;
  }
}

// W diag(s) with gain / s must be the same function as W with gain.
TEST_F(PipelineTest, BalancingIsFoldedIntoTheNorm) {
  auto source = compressor(recipe_of("tq4+4"));
  const std::vector<float> gain = decode(*source, "norm1"), weights = decode(*source, "q");
  double error = 0, norm = 0, change = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t c = i % TinyCheckpoint::kHidden;
    const double product = double{weights[i]} * gain[c];
    const double original = double{tiny_.values("q")[i]} * tiny_.values("norm1")[c];
    error += (product - original) * (product - original);
    norm += original * original;
    change += std::fabs(gain[c] - tiny_.values("norm1")[c]);
  }
  EXPECT_LT(error / norm, 3e-4);
  EXPECT_GT(change, 1.0);
}

TEST_F(PipelineTest, RescaledChannelsGiveTheSameCodes) {
  auto original = compressor(recipe_of("tq3"));
  const std::vector<float> q = decode(*original, "q"), gain = decode(*original, "norm1");
  for (int c : {3, 50}) {  // an exact power of two, so that no rounding differs
    const float factor = c == 3 ? 32.0f : 1.0f / 32;
    tiny_.values("norm1")[static_cast<size_t>(c)] /= factor;
    for (const char* name : {"q", "k", "v"}) {
      for (int r = 0; r < 48; ++r) {
        tiny_.values(name)[static_cast<size_t>(r * TinyCheckpoint::kHidden + c)] *= factor;
      }
    }
  }
  tiny_.save();
  auto rescaled = compressor(recipe_of("tq3"));
  const std::vector<float> q2 = decode(*rescaled, "q"), gain2 = decode(*rescaled, "norm1");
  double difference = 0, norm = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    difference += std::pow(double{q[i]} - double{q2[i]}, 2);
    norm += double{q[i]} * q[i];
  }
  EXPECT_LT(difference / norm, 1e-4);
  for (size_t c = 0; c < gain.size(); ++c)
    EXPECT_NEAR(gain[c], gain2[c], 1e-5 * gain[c] + 1e-6);
}

TEST_F(PipelineTest, NoBalancingWhereAMatrixKeepsItsType) {
  Recipe recipe = recipe_of("tq3");
  recipe.rules.push_back(parse_ignore("v"));
  auto source = compressor(recipe);
  EXPECT_EQ(decode(*source, "norm1"), tiny_.values("norm1"));
  EXPECT_EQ(decode(*source, "v"), tiny_.values("v"));
  EXPECT_NE(decode(*source, "norm2"), tiny_.values("norm2"));
  recipe.rules.clear();
  recipe.balance = false;
  EXPECT_EQ(decode(*compressor(recipe), "norm2"), tiny_.values("norm2"));
}

TEST_F(PipelineTest, MeasuredErrorEqualsTheStoredOne) {
  for (const char* type : {"tq3", "tq4+2", "q8_0"}) {
    auto source = compressor(recipe_of(type));
    quantize_to_file(*source, tiny_.file("out.gguf"), {});
    auto file = WalshFile::open(tiny_.file("out.gguf"));
    CheckpointSource checkpoint(Checkpoint::open(tiny_.path()), {});
    for (const char* name : {"q", "down", "gate"}) {
      const double stored = file->find(name)->nmse;
      EXPECT_GT(stored, 0);
      const double measured = measure_nmse(*file, checkpoint, tiny_.plan(), name, pool_);
      EXPECT_NEAR(measured, stored, 1e-3 * stored) << type << " " << name;
    }
  }
}

TEST_F(PipelineTest, RulesAreTriedInOrder) {
  Recipe recipe = recipe_of("tq2");
  recipe.rules = {parse_override("re:^(q|k)$=tq4"), parse_ignore("k"), parse_ignore("re:down")};
  auto source = compressor(recipe);
  EXPECT_EQ(source->load("q").format->name, "tq4");
  EXPECT_EQ(source->load("k").format->name, "tq4");
  EXPECT_EQ(source->load("v").format->name, "tq2");
  EXPECT_EQ(source->load("down").format->name, "f32");
}

TEST_F(PipelineTest, WrongRulesAreRefused) {
  EXPECT_THROW(parse_override("q"), Error);
  EXPECT_THROW(parse_override("re:(=tq3"), Error);
  EXPECT_THROW(parse_override("q=tq9"), Error);
  EXPECT_THROW(parse_ignore(""), Error);
  Recipe recipe = recipe_of("tq3");
  recipe.rules = {parse_ignore("no_such_tensor")};
  EXPECT_EQ(failure(recipe), ErrorCode::usage);
  recipe.rules.clear();
  for (int block : {16, 48, 2048, -32}) {
    recipe.block = block;
    EXPECT_EQ(failure(recipe), ErrorCode::usage) << block;
  }
}

TEST_F(PipelineTest, BadCheckpointsNameTheTensorAndLeaveNoFile) {
  std::string text;
  tiny_.values("down")[7] = std::numeric_limits<float>::quiet_NaN();
  tiny_.save();
  EXPECT_EQ(failure(recipe_of("tq3"), &text), ErrorCode::bad_input);
  EXPECT_NE(text.find("tensor down"), std::string::npos) << text;
  EXPECT_NE(text.find("column 7"), std::string::npos) << text;
  tiny_.values("down")[7] = 0;
  tiny_.values("gate")[0] = std::numeric_limits<float>::infinity();
  tiny_.save();
  EXPECT_EQ(failure(recipe_of("tq3"), &text), ErrorCode::bad_input);
  EXPECT_NE(text.find("tensor gate"), std::string::npos) << text;
  tiny_.values("gate")[0] = 0;
  tiny_.add("q_bias", {48}, 1);
  tiny_.save();
  EXPECT_EQ(failure(recipe_of("tq3"), &text), ErrorCode::bad_input);
  EXPECT_NE(text.find("q_bias"), std::string::npos) << text;
  for (const auto& entry : std::filesystem::directory_iterator(tiny_.path())) {
    EXPECT_EQ(entry.path().extension() == ".json" || entry.path().extension() == ".safetensors",
              true)
        << entry.path();
  }
}

TEST_F(PipelineTest, ShapesThatDoNotFitTheConfigAreRefusedBeforeAnythingIsWritten) {
  for (const char* name : {"embed", "up", "head"}) {
    ModelPlan plan = tiny_.plan();
    plan.shapes = {{"embed", {TinyCheckpoint::kVocab, TinyCheckpoint::kHidden}},
                   {"up", {TinyCheckpoint::kFfn, TinyCheckpoint::kHidden}},
                   {"head", {TinyCheckpoint::kVocab, TinyCheckpoint::kHidden}}};
    Compressor(Checkpoint::open(tiny_.path()), plan, recipe_of("tq3"), pool_);  // as it is
    plan.shapes[name][0] += 1;
    try {
      Compressor(Checkpoint::open(tiny_.path()), plan, recipe_of("tq3"), pool_);
      FAIL() << name << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      const std::string text = e.what();
      EXPECT_NE(text.find(std::string("tensor ") + name + ": shape is ["), std::string::npos)
          << text;
      EXPECT_NE(text.find("expected ["), std::string::npos) << text;
    }
  }
}

TEST_F(PipelineTest, DamagedTensorsAreFoundOnLoad) {
  quantize_to_file(*compressor(recipe_of("tq3")), tiny_.file("out.gguf"), {});
  const std::string good = slurp(tiny_.file("out.gguf"));
  auto file = WalshFile::open(tiny_.file("out.gguf"));
  const auto* array = file->find("up")->arrays[0].data();
  const auto* base = file->find("embed")->arrays[0].data();
  std::string bad = good;
  // The first tensor's data start at a known string: its own bytes.
  const std::string needle(reinterpret_cast<const char*>(base), 32);
  const size_t start = good.find(needle);
  ASSERT_NE(start, std::string::npos);
  bad[start + static_cast<size_t>(array - base) + 5] ^= 0x10;
  std::ofstream(tiny_.file("bad.gguf"), std::ios::binary) << bad;
  auto damaged = WalshFile::open(tiny_.file("bad.gguf"));
  EXPECT_NO_THROW(damaged->load("gate"));
  try {
    damaged->load("up");
    FAIL() << "damage not found";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(e.what()).find("tensor up: checksum"), std::string::npos) << e.what();
  }
}

TEST_F(PipelineTest, TruncatedFilesAreRefusedAtEveryLength) {
  quantize_to_file(*compressor(recipe_of("tq3")), tiny_.file("out.gguf"), {});
  const std::string good = slurp(tiny_.file("out.gguf"));
  for (size_t length = 0; length < good.size(); length += 97) {
    std::ofstream(tiny_.file("cut.gguf"), std::ios::binary) << good.substr(0, length);
    EXPECT_THROW(WalshFile::open(tiny_.file("cut.gguf")), Error) << length;
  }
}

TEST_F(PipelineTest, AnInterruptedTrellisRunContinuesToTheSameBytes) {
  Recipe recipe = recipe_of("tc3:h:L14");
  recipe.rules = {parse_override("k=tc2.5:h:L14")};
  const std::string path = tiny_.file("out.gguf"), rest = path + kResumeSuffix;
  quantize_to_file(*compressor(recipe), path, {});
  const std::string want = slurp(path);
  EXPECT_FALSE(std::filesystem::exists(rest));
  std::filesystem::remove(path);

  const auto stop_after = [&](int trellis_tensors) {
    return [left = trellis_tensors](const QuantizeProgress& p) mutable {
      if (p.tensor->format->kind == CodeKind::trellis && --left == 0)
        throw Error(ErrorCode::interrupted, "", "stopped");
    };
  };
  EXPECT_THROW(quantize_to_file(*compressor(recipe), path, stop_after(2)), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
  const std::string kept = slurp(rest);
  ASSERT_FALSE(kept.empty());
  const auto resume = [&] {
    int resumed = 0;
    quantize_to_file(*compressor(recipe), path,
                     [&](const QuantizeProgress& p) { resumed += p.resumed; });
    EXPECT_EQ(slurp(path), want);
    EXPECT_FALSE(std::filesystem::exists(rest));
    return resumed;
  };
  EXPECT_EQ(resume(), 2);
  EXPECT_EQ(resume(), 0);

  // A record cut short is dropped, a damaged one not used.
  std::ofstream(rest, std::ios::binary) << kept.substr(0, kept.size() - 5);
  EXPECT_EQ(resume(), 1);
  for (const size_t at : {25u, 100u}) {  // in the error, in the content
    std::string damaged = kept;
    damaged[at] ^= 1;
    std::ofstream(rest, std::ios::binary) << damaged;
    EXPECT_EQ(resume(), 1);
  }

  // Another recipe, or other weights, take nothing of it.
  std::ofstream(rest, std::ios::binary) << kept;
  int resumed = 0;
  Recipe other = recipe;
  other.seed = 43;
  quantize_to_file(*compressor(other), path,
                   [&](const QuantizeProgress& p) { resumed += p.resumed; });
  EXPECT_EQ(resumed, 0);
  EXPECT_NE(slurp(path), want);
}

TEST_F(PipelineTest, AnInterruptedRunWithProductCodesContinuesToTheSameBytes) {
  const Recipe recipe = recipe_of("pq3");
  const std::string path = tiny_.file("out.gguf");
  quantize_to_file(*compressor(recipe), path, {});
  const std::string want = slurp(path);
  std::filesystem::remove(path);

  const auto stop = [left = 2](const QuantizeProgress& p) mutable {
    if (p.tensor->format->name == "pq3" && --left == 0)
      throw Error(ErrorCode::interrupted, "", "stopped");
  };
  EXPECT_THROW(quantize_to_file(*compressor(recipe), path, stop), Error);
  int resumed = 0;
  quantize_to_file(*compressor(recipe), path,
                   [&](const QuantizeProgress& p) { resumed += p.resumed; });
  EXPECT_EQ(resumed, 2);
  EXPECT_EQ(slurp(path), want);
}

TEST_F(PipelineTest, ProgressTellsTheTimeAhead) {
  double last = -1;
  quantize_to_file(*compressor(recipe_of("tc3:h:L14")), tiny_.file("out.gguf"),
                   [&](const QuantizeProgress& p) {
                     last = p.seconds_left;
                     if (p.index < p.count) {
                       EXPECT_GT(last, 0) << p.tensor->name;
                     }
                   });
  EXPECT_NEAR(last, 0, 1e-6);
}

TEST_F(PipelineTest, FastEffortShortensTheStatesOfATrellis) {
  Recipe recipe = recipe_of("tc3:h");
  recipe.encode.effort = Effort::fast;
  EXPECT_EQ(compressor(recipe)->format_of("q").name, "tc3:h:L14");
  for (const auto& [name, fast] : {std::pair{"tc4:hq", "tc4:hq:L14"},
                                   {"tc2.5:blocks", "tc2.5:h:L14:blocks"},
                                   {"tc3:h:L14", "tc3:h:L14"},
                                   {"tq3", "tq3"}}) {
    recipe.type = &get_format(name);
    EXPECT_EQ(compressor(recipe)->format_of("q").name, fast);
  }
}

TEST_F(PipelineTest, MatricesWithUnequalBlocksGetAScalePerRowAndBlock) {
  const Recipe recipe = recipe_of("tc3:h:L14");
  auto plain = compressor(recipe);
  plain->settle_formats();
  EXPECT_EQ(plain->format_of("down").name, "tc3:h:L14");
  // Rows of the first half are large in the first 128 columns, the others behind them.
  std::vector<float>& down = tiny_.values("down");
  const TensorPlan& shape = *std::find_if(plain->tensors().begin(), plain->tensors().end(),
                                          [](const TensorPlan& t) { return t.name == "down"; });
  ASSERT_GT(shape.cols, 128);
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      if ((r < shape.rows / 2) == (c < 128)) down[static_cast<size_t>(r * shape.cols + c)] *= 4;
    }
  }
  tiny_.save();
  auto crossed = compressor(recipe);
  crossed->settle_formats();
  EXPECT_EQ(crossed->format_of("down").name, "tc3:h:L14:blocks");
  EXPECT_EQ(crossed->format_of("up").name, "tc3:h:L14");
  quantize_to_file(*crossed, tiny_.file("out.gguf"), {});
  auto file = WalshFile::open(tiny_.file("out.gguf"));
  EXPECT_EQ(file->format_of("down").name, "tc3:h:L14:blocks");
  EXPECT_EQ(decode(*file, "down"), decode(*crossed, "down"));
}

// Random bytes stand in the header of a file with all kinds of trellis arrays: it is refused, or
// still has the tensors that the header describes.
TEST_F(PipelineTest, DamagedHeadersOfTrellisFilesAreRefusedOrHarmless) {
  Recipe recipe = recipe_of("tc3:h:L14");
  recipe.rules = {parse_override("up=tc2:h:L14:blocks"), parse_override("down=tc4:h:L14"),
                  parse_override("gate=tc3.5:h:L14"), parse_override("v=tc2.5:h:L14:blocks")};
  const std::string path = tiny_.file("out.gguf");
  quantize_to_file(*compressor(recipe), path, {});
  const std::string good = slurp(path);
  const size_t header = good.find("walsh.tensor.name"), end = good.size() / 2;
  ASSERT_LT(header, end);
  Random random(17);
  int opened = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    for (uint64_t i = 0, count = 1 + random.below(3); i < count; ++i) {
      const uint64_t at = round % 4 == 0 ? random.below(end) : header + random.below(1500);
      bad[at] = static_cast<char>(random.below(4) ? random.next() : 0xff);
    }
    reseal(bad);
    std::ofstream(tiny_.file("bad.gguf"), std::ios::binary) << bad;
    try {
      auto file = WalshFile::open(tiny_.file("bad.gguf"));
      ++opened;
      for (const StoredTensor& t : file->tensors()) {
        EXPECT_EQ(tensor_bytes(*t.format, t.rows, t.cols), t.bytes);
        if (t.rows * t.cols < 1 << 20) decode(*file, t.name);
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(opened, 20);
  EXPECT_GT(refused, 50);
}

TEST_F(PipelineTest, OpenSourceTellsFilesFromFolders) {
  const std::string folder = std::string(WALSH_TEST_DATA) + "/models/qwen3-tiny";
  const std::string q = "model.layers.0.self_attn.q_proj.weight", file = tiny_.file("out.gguf");
  const Recipe recipe = recipe_of("tq3");
  quantize_to_file(*open_compressor(folder, recipe, pool_), file, {});
  EXPECT_EQ(open_source(folder, nullptr, pool_)->load(q).format->name, "bf16");
  EXPECT_EQ(open_source(folder, &recipe, pool_)->load(q).format->name, "tq3");
  const auto written = open_source(file, nullptr, pool_);
  EXPECT_EQ(written->load(q).format->name, "tq3");
  EXPECT_EQ(parse_json(written->config_json(), "x")["model_type"], "qwen3");
  EXPECT_THROW(open_source(file, &recipe, pool_), Error);
  EXPECT_THROW(open_source(tiny_.file("absent"), nullptr, pool_), Error);
}

}  // namespace
}  // namespace walsh
