#include "api/calibrate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "api/convert.h"

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
  request.read();
  std::filesystem::remove(path);
  request.read();
  ASSERT_NE(request.content, nullptr);
  EXPECT_EQ(request.content->size(), 6600u);
  ThreadPool pool(1);
  const std::string folder = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";
  const Recipe recipe = to_recipe(CompressOptions{});
  const PreparedCalibration first = prepare_calibration(folder, recipe, request, pool);
  EXPECT_EQ(first.description.tokens, 512);
  EXPECT_EQ(prepare_calibration(folder, recipe, request, pool).description.checksum,
            first.description.checksum);
}

}  // namespace
}  // namespace walsh
