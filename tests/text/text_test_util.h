// Helps the tests of the text layer.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/step_budget.h"
#include "text/tokenizer.h"
#include "walsh/error.h"

namespace walsh::test {

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string data_path(std::string_view name) {
  return std::string(WALSH_TEST_DATA) + "/tokenizers/" + std::string(name);
}

inline Tokenizer load_tokenizer(const std::string& path) {
  return Tokenizer::from_json(read_text(path), "", "tokenizer.json");
}

// This budget is for calls whose work is of no interest.
inline StepBudget& plenty() {
  static StepBudget budget(UINT64_MAX);
  return budget;
}

// Returns the message of the Error that `call` throws, or "" if it throws none.
template <typename Call>
std::string error_of(Call call, ErrorCode code = ErrorCode::bad_input) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "";
}

}  // namespace walsh::test
