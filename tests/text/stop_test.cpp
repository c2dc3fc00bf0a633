// Tokenizing a long text ends when the caller asks for it (walsh/stop.h).
#include "walsh/stop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "text_test_util.h"

namespace walsh {
namespace {

TEST(StopTokenizing, EndsInTheMiddleOfAText) {
  const Tokenizer tokenizer = test::load_tokenizer(test::data_path("llama3.json"));
  std::string text;
  while (text.size() < size_t{48} << 20)  // seconds of work
    text += "The river was low that summer, 1234 of them walked across. ";
  std::atomic<bool> flag = false;
  const StopScope scope(flag);
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    flag = true;
  });
  const std::string error =
      test::error_of([&] { tokenizer.encode(text, false); }, ErrorCode::interrupted);
  stopper.join();
  EXPECT_NE(error, "");
}

}  // namespace
}  // namespace walsh
