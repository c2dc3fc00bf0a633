// Makes a tiny checkpoint with its compressors and files, for tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "quantize/pipeline/pipeline.h"
#include "quantize/tiny_checkpoint.h"
#include "threads.h"

namespace walsh {

inline Recipe recipe_of(const std::string& type) {
  Recipe recipe;
  recipe.type = &get_format(type);
  recipe.encode.effort = Effort::fast;
  return recipe;
}

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class TinyPipeline : public ::testing::Test {
 protected:
  std::unique_ptr<Compressor> compressor(const Recipe& recipe) {
    return std::make_unique<Compressor>(Checkpoint::open(tiny_.path()), tiny_.plan(), recipe,
                                        pool_);
  }
  // Writes out.gguf and returns its bytes.
  std::string quantize(const Recipe& recipe) {
    quantize_to_file(*compressor(recipe), tiny_.file("out.gguf"), {});
    return slurp(tiny_.file("out.gguf"));
  }

  TinyCheckpoint tiny_{::testing::UnitTest::GetInstance()->current_test_info()->name()};
  ThreadPool pool_{test::kThreads};
};

}  // namespace walsh
