// Tests that run and serve have a flag for every sampling option.
#include <gmock/gmock.h>

#include "cli/command.h"
#include "generate/sampling_options.h"

namespace walsh {
namespace {

using SamplingFlags = CommandTest;

TEST_F(SamplingFlags, AreThoseOfAllOptions) {
  for (const char* command : {"run", "serve"}) {
    CommandResult help = walsh({command, "--help-all"});
    if (help.status != 0) help = walsh({command, "--help"});
    for (const SamplingOption& option : sampling_options()) {
      const std::string flags = option.flags;
      for (size_t at = 0; at < flags.size();) {
        const size_t end = std::min(flags.find(',', at), flags.size());
        EXPECT_THAT(help.out, testing::HasSubstr(flags.substr(at, end - at))) << command;
        at = end + 1;
      }
    }
  }
}

}  // namespace
}  // namespace walsh
