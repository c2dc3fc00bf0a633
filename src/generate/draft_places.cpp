#include "generate/draft_places.h"

#include "walsh/error.h"

namespace walsh {

bool guess_token(TokenChooser& chooser, std::span<const float> logits, DraftTask& task) {
  try {
    if (const auto token = chooser.choose(logits)) {
      task.drafted.push_back(*token);
      return true;
    }
  } catch (const Error&) {  // the text will fail in the same way, and says why
  }
  return false;
}

}  // namespace walsh
