// Tests files of llama-imatrix, made here as llama.cpp writes them.
#include "calibrate/imatrix_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "io/gguf_writer.h"
#include "io/mapped_file.h"
#include "quantize/pipeline/open.h"
#include "temporary_folder.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::HasSubstr;

std::string config_of(const std::string& model) {
  std::ifstream in(std::string(WALSH_TEST_DATA) + "/models/" + model + "/config.json");
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Sums {
  std::string name;
  std::vector<float> sums, counts;
};

std::string write(const test::TemporaryFolder& work, const std::vector<Sums>& all,
                  const char* type = "imatrix") {
  GgufWriter writer(32);
  writer.set("general.type", GgufValue::text(type));
  writer.set("general.architecture", GgufValue::text("llama"));
  for (const Sums& one : all) {
    const uint64_t experts = one.counts.size();
    writer.add_tensor(one.name + ".in_sum2", GgmlType::f32, {one.sums.size() / experts, experts});
    writer.add_tensor(one.name + ".counts", GgmlType::f32, {1, experts});
  }
  const std::string path = work.file("imatrix.gguf");
  writer.open(path);
  for (const Sums& one : all) {
    writer.write(one.name + ".in_sum2", std::as_bytes(std::span(one.sums)));
    writer.write(one.name + ".counts", std::as_bytes(std::span(one.counts)));
  }
  writer.commit();
  return path;
}

ImatrixStatistics open(const std::string& path, const std::string& model, const char* type) {
  const MappedFile file(path);
  return {*read_imatrix(file.bytes(), path), file.bytes(), path, type,
          read_plan(config_of(model), "config.json")};
}

std::vector<float> rising(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i + 1);
  return values;
}

void expect_refused(const std::vector<Sums>& all, const std::string& part) {
  const test::TemporaryFolder work;
  try {
    ImatrixStatistics statistics = open(write(work, all), "llama31-tiny", "llama");
    ADD_FAILURE() << "accepted, expected an error with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), HasSubstr("imatrix.gguf"));
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

TEST(ImatrixStatistics, AreMeansOfSquaresWithoutProducts) {
  const test::TemporaryFolder work;
  const ModelPlan plan = read_plan(config_of("llama31-tiny"), "config.json");
  const auto width = static_cast<size_t>(plan.sites[0].width);
  ImatrixStatistics statistics =
      open(write(work, {{"blk.0.attn_q.weight", rising(width), {8}}}), "llama31-tiny", "llama");
  const InputMoments& moments = statistics.moments(0);
  EXPECT_EQ(moments.tokens, 8);
  for (size_t i = 0; i < width; ++i)
    for (size_t j = i; j < width; ++j)
      ASSERT_EQ(moments.sums[i * width + j], i == j ? static_cast<float>(i + 1) : 0);
  EXPECT_FLOAT_EQ(static_cast<float>(moments.rms()[7]), 1);
  EXPECT_THAT(statistics.note(), HasSubstr("1 of "));
  // All inputs count alike where the file lacks them.
  const InputMoments& head = statistics.moments(static_cast<int>(plan.sites.size()));
  EXPECT_EQ(head.tokens, 1);
  EXPECT_EQ(head.rms(), std::vector<double>(static_cast<size_t>(head.width), 1.0));
}

TEST(ImatrixStatistics, OfExpertsAreThoseOfTheTokensThatReachedThem) {
  const test::TemporaryFolder work;
  const ModelPlan plan = read_plan(config_of("mixtral-tiny"), "config.json");
  int site = 0;
  while (!plan.experts.contains(plan.sites[static_cast<size_t>(site)].matrices[0]))
    ++site;
  const auto width = static_cast<size_t>(plan.sites[static_cast<size_t>(site)].width);
  int experts = 0;
  for (const auto& [name, matrix] : plan.experts)
    experts = std::max(experts, matrix.expert + 1);
  std::vector<float> counts(static_cast<size_t>(experts), 2);
  counts[1] = 0;
  ImatrixStatistics statistics =
      open(write(work, {{"blk.0.ffn_gate_exps.weight", rising(width * counts.size()), counts}}),
           "mixtral-tiny", "mixtral");
  EXPECT_EQ(statistics.expert_moments(site, 0).tokens, 2);
  EXPECT_EQ(statistics.expert_moments(site, 0).sums[0], 1);
  EXPECT_EQ(statistics.expert_moments(site, 1).tokens, 0);
  EXPECT_EQ(statistics.expert_moments(site, 2).sums[0], static_cast<float>(2 * width + 1));
  EXPECT_EQ(statistics.moments(site).tokens, 2 * (experts - 1));
}

// Errors of columns that meet large inputs count most.
TEST(ImatrixStatistics, LowerTheErrorOfOutputs) {
  const test::TemporaryFolder work;
  const std::string folder = std::string(WALSH_TEST_DATA) + "/models/llama31-tiny";
  const std::string matrix = "model.layers.0.self_attn.q_proj.weight";
  ThreadPool pool(test::kThreads);
  Recipe recipe;
  recipe.type = &get_format("tq3");
  recipe.balance = false;
  CheckpointSource original = CheckpointSource::open(folder);
  const Tensor exact = original.load(matrix);
  const auto cols = static_cast<size_t>(exact.cols);
  std::vector<float> squares(cols);
  for (size_t c = 0; c < cols; ++c)
    squares[c] = c % 4 == 0 ? 50000.0f : 500.0f;
  const auto values = [](const Tensor& tensor) {
    std::vector<float> out(static_cast<size_t>(tensor.rows * tensor.cols));
    decode_rows(tensor, 0, tensor.rows, out.data());
    return out;
  };
  const std::vector<float> weights = values(exact);
  const auto error = [&](bool calibrated) {
    recipe.calibration.reset();
    if (calibrated) recipe.calibration = CalibrationText{"checksum"};
    const auto compressor = open_compressor(folder, recipe, pool);
    if (calibrated) {
      const std::string path = write(work, {{"blk.0.attn_q.weight", squares, {1000}}});
      compressor->calibrate(
          std::make_shared<ImatrixStatistics>(open(path, "llama31-tiny", "llama")));
    }
    const std::vector<float> found = values(compressor->load(matrix));
    double sum = 0;
    for (size_t i = 0; i < found.size(); ++i)
      sum += squares[i % cols] * std::pow(found[i] - weights[i], 2);
    return sum;
  };
  EXPECT_LT(error(true), 0.9 * error(false));
}

TEST(ImatrixStatistics, ThatDoNotFitAreRefused) {
  const auto width =
      static_cast<size_t>(read_plan(config_of("llama31-tiny"), "config.json").sites[0].width);
  expect_refused({}, "nothing about the matrices of this model");
  expect_refused({{"blk.77.attn_q.weight", rising(width), {8}}}, "nothing about the matrices");
  expect_refused({{"blk.0.attn_q.weight", rising(width + 1), {8}}}, "inputs of model.layers.0");
  std::vector<float> sums = rising(width);
  sums[3] = std::numeric_limits<float>::quiet_NaN();
  expect_refused({{"blk.0.attn_q.weight", sums, {8}}}, "no sum of squares");
  expect_refused({{"blk.0.attn_q.weight", rising(width), {-1}}}, "no count");
  const std::vector<float> large(2 * width, std::numeric_limits<float>::max());
  expect_refused({{"blk.0.attn_q.weight", large, {8, 8}}}, "attn_q.weight.in_sum2: has sums that");
}

TEST(ImatrixStatistics, OtherFilesAreNotTaken) {
  const test::TemporaryFolder work;
  EXPECT_NE(read_imatrix(MappedFile(write(work, {})).bytes(), "x"), nullptr);
  EXPECT_EQ(read_imatrix(MappedFile(write(work, {}, "model")).bytes(), "x"), nullptr);
  EXPECT_EQ(read_imatrix(std::as_bytes(std::span(std::string_view("A text."))), "x"), nullptr);
}

// llama-imatrix wrote this before it wrote GGUF.
TEST(ImatrixStatistics, OfTheOldFormAreRefusedWithTheWayToConvertThem) {
  const std::string name = "blk.0.attn_q.weight";
  std::string bytes;
  const auto add = [&](uint32_t number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  add(1);
  add(static_cast<uint32_t>(name.size()));
  bytes += name;
  add(8);
  try {
    read_imatrix(std::as_bytes(std::span(bytes)), "imatrix.dat");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), HasSubstr("imatrix.dat: is an imatrix of the old form"));
  }
  bytes[4] = '\xff';  // a length that the file does not have
  EXPECT_EQ(read_imatrix(std::as_bytes(std::span(bytes)), "x"), nullptr);
}

}  // namespace
}  // namespace walsh
