#include "api/calibrate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "api/convert.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// A search and the encoding of what it has found read the text, which a pipe gives only once.
TEST(CalibrationRequest, ReadsItsTextOnce) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("walsh_calibrate_" + std::to_string(getpid()) + ".txt");
  std::ofstream text(path);
  for (int i = 0; i < 100; ++i)
    text << "The river was low that summer, and the children walked across it. ";
  text.close();
  CalibrationRequest request{path, 512, {}, {}};
  ThreadPool pool(1);
  const std::string folder = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";
  request.read(folder, pool);
  std::filesystem::remove(path);
  request.read(folder, pool);
  ASSERT_NE(request.content, nullptr);
  EXPECT_EQ(request.content->size(), 6600u);
  const Recipe recipe = to_recipe(CompressOptions{});
  const PreparedCalibration first = prepare_calibration(folder, recipe, request, pool);
  EXPECT_EQ(first.description.tokens, 512);
  EXPECT_EQ(prepare_calibration(folder, recipe, request, pool).description.checksum,
            first.description.checksum);
}

// People without a text let the model write one: whole windows, each from the start of a text.
TEST(CalibrationRequest, TheModelWritesItsOwnText) {
  const std::string folder = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";
  ThreadPool pool(2);
  CalibrationRequest request;
  request.text = kOwnText;
  request.tokens = 600;
  int64_t told = 0;
  request.writing = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 512);
    EXPECT_GE(done, told);
    told = done;
  };
  request.read(folder, pool);
  EXPECT_GT(told, 500);
  ASSERT_NE(request.own, nullptr);
  EXPECT_EQ(request.own->size(), 512u);
  const Recipe recipe = to_recipe(CompressOptions{});
  const PreparedCalibration prepared = prepare_calibration(folder, recipe, request, pool);
  EXPECT_EQ(prepared.description.tokens, 512);
  EXPECT_EQ(prepared.description.window, 512);
}

// The moments of outputs belong to one text, so the model must not write another.
TEST(CalibrationRequest, OwnTextIsThatOfTheCurvature) {
  const std::filesystem::path curvature =
      std::filesystem::temp_directory_path() / ("walsh_own_text_" + std::to_string(getpid()));
  std::filesystem::create_directory(curvature);
  ThreadPool pool(1);
  CalibrationRequest request;
  request.text = kOwnText;
  request.curvature = curvature;
  const std::string folder = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";
  try {
    request.read(folder, pool);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("did not write"), std::string::npos) << e.what();
  }
  std::ofstream(curvature / kOwnTextFile) << "What the model wrote.";
  request.read(folder, pool);
  ASSERT_NE(request.content, nullptr);
  EXPECT_EQ(*request.content, "What the model wrote.");
  std::filesystem::remove_all(curvature);
}

}  // namespace
}  // namespace walsh
