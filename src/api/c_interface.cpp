// Implements include/walsh/walsh.h with the C++ classes.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/json_options.h"
#include "walsh/engine.h"
#include "walsh/error.h"
#include "walsh/stop.h"
#include "walsh/version.h"
#include "walsh/walsh.h"

struct walsh_model {
  walsh::Engine engine;
};

struct walsh_session {
  walsh::TextSession session;
  std::atomic<bool> stop = false;
  std::vector<std::string> images = {};  // The next prompt has them.
};

namespace walsh {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers set it");
static_assert(static_cast<int>(FinishReason::stop_token) == WALSH_FINISH_STOP_TOKEN);
static_assert(static_cast<int>(FinishReason::max_tokens) == WALSH_FINISH_MAX_TOKENS);
static_assert(static_cast<int>(FinishReason::context_full) == WALSH_FINISH_CONTEXT_FULL);
static_assert(static_cast<int>(FinishReason::stopped) == WALSH_FINISH_STOPPED);
static_assert(static_cast<int>(FinishReason::stop_string) == WALSH_FINISH_STOP_STRING);

// Returns the error of this thread. Its buffer stays valid, because walsh_error() returned it.
std::string& last_error() {
  thread_local std::string text;
  return text;
}

walsh_status fail(walsh_status status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {  // the status reports it
  }
  return status;
}

// Runs `body` and turns exceptions into a status.
template <class Body>
walsh_status guarded(const Body& body) noexcept {
  try {
    body();
    return WALSH_OK;
  } catch (const Error& e) {
    return fail(static_cast<walsh_status>(exit_status(e.code())), e.what());
  } catch (const std::bad_alloc&) {
    return fail(WALSH_LIMIT, "memory: there is none left");
  } catch (const std::exception& e) {
    return fail(WALSH_INTERNAL, e.what());
  } catch (...) {
    return fail(WALSH_INTERNAL, "an unknown exception");
  }
}

void require(bool there, const char* argument) {
  if (!there) throw Error(ErrorCode::usage, argument, "is NULL");
}

std::string_view options_text(const char* options) {
  return options == nullptr ? std::string_view() : std::string_view(options);
}

void check_room(size_t needed, size_t capacity) {
  if (needed > capacity)
    throw Error(ErrorCode::limit, "capacity",
                std::to_string(capacity) + ", " + std::to_string(needed) + " are needed");
}

void write_text(const std::string& from, char* text, size_t capacity, size_t* length) {
  require(length != nullptr, "length");
  *length = from.size();
  if (text == nullptr && capacity == 0) return;
  require(text != nullptr, "text");
  check_room(from.size() + 1, capacity);
  std::copy_n(from.c_str(), from.size() + 1, text);
}

template <class Prompt>
walsh_status generate(walsh_session* session, const Prompt& prompt, const char* options,
                      walsh_callback callback, void* user, walsh_result* result) {
  return guarded([&] {
    require(session != nullptr, "session");
    std::vector<std::string> images = std::exchange(session->images, {});
    GenerationOptions wanted = parse_generation_options(options_text(options));
    wanted.images = std::move(images);
    session->stop = false;
    const StopScope scope(session->stop);
    const GenerationResult done =
        session->session.generate(prompt(), wanted, [&](std::string_view piece) {
          return callback == nullptr || callback(user, piece.data(), piece.size()) != 0;
        });
    if (result == nullptr) return;
    *result = {static_cast<walsh_finish>(done.reason),
               done.prompt_tokens,
               done.cached_tokens,
               done.tokens,
               done.prompt_seconds,
               done.decode_seconds,
               done.seed};
  });
}

}  // namespace
}  // namespace walsh

using walsh::guarded;
using walsh::require;

extern "C" {

const char* walsh_version(void) {
  return walsh::kVersion;
}

const char* walsh_error(void) {
  return walsh::last_error().c_str();
}

walsh_status walsh_open(const char* path, const char* options, walsh_model** model) {
  return guarded([&] {
    require(model != nullptr, "model");
    *model = nullptr;
    require(path != nullptr, "path");
    const walsh::EngineOptions wanted = walsh::parse_engine_options(walsh::options_text(options));
    *model = new walsh_model{walsh::Engine::open(path, wanted)};
  });
}

void walsh_close(walsh_model* model) {
  delete model;
}

int64_t walsh_vocab_size(const walsh_model* model) {
  return model->engine.vocab_size();
}
int64_t walsh_context(const walsh_model* model) {
  return model->engine.context();
}
double walsh_bits_per_weight(const walsh_model* model) {
  return model->engine.bits_per_weight();
}

walsh_status walsh_tokenize(const walsh_model* model, const char* text, size_t length,
                            int add_special, int32_t* tokens, size_t capacity, size_t* count) {
  return guarded([&] {
    require(model != nullptr, "model");
    require(text != nullptr || length == 0, "text");
    require(count != nullptr, "count");
    const std::vector<int32_t> ids = model->engine.encode({text, length}, add_special != 0);
    *count = ids.size();
    if (tokens == nullptr && capacity == 0) return;
    require(tokens != nullptr, "tokens");
    walsh::check_room(ids.size(), capacity);
    std::ranges::copy(ids, tokens);
  });
}

walsh_status walsh_detokenize(const walsh_model* model, const int32_t* tokens, size_t count,
                              int skip_special, char* text, size_t capacity, size_t* length) {
  return guarded([&] {
    require(model != nullptr, "model");
    require(tokens != nullptr || count == 0, "tokens");
    walsh::write_text(model->engine.decode({tokens, count}, skip_special != 0), text, capacity,
                      length);
  });
}

walsh_status walsh_chat_prompt(const walsh_model* model, const char* messages, char* text,
                               size_t capacity, size_t* length) {
  return guarded([&] {
    require(model != nullptr, "model");
    require(messages != nullptr, "messages");
    walsh::write_text(model->engine.chat_prompt(messages), text, capacity, length);
  });
}

walsh_status walsh_logits(walsh_model* model, const int32_t* tokens, size_t count, float* logits) {
  return guarded([&] {
    require(model != nullptr, "model");
    require(tokens != nullptr || count == 0, "tokens");
    require(logits != nullptr, "logits");
    std::ranges::copy(model->engine.logits({tokens, count}), logits);
  });
}

walsh_status walsh_session_open(walsh_model* model, int64_t context, walsh_session** session) {
  return guarded([&] {
    require(session != nullptr, "session");
    *session = nullptr;
    require(model != nullptr, "model");
    *session = new walsh_session{walsh::TextSession(model->engine, context)};
  });
}

void walsh_session_close(walsh_session* session) {
  delete session;
}

void walsh_session_reset(walsh_session* session) {
  session->session.reset();
}

walsh_status walsh_generate(walsh_session* session, const char* prompt, size_t length,
                            const char* options, walsh_callback callback, void* user,
                            walsh_result* result) {
  const auto text = [&] {
    require(prompt != nullptr || length == 0, "prompt");
    return std::string_view(prompt, length);
  };
  return walsh::generate(session, text, options, callback, user, result);
}

walsh_status walsh_generate_tokens(walsh_session* session, const int32_t* prompt, size_t count,
                                   const char* options, walsh_callback callback, void* user,
                                   walsh_result* result) {
  const auto tokens = [&] {
    require(prompt != nullptr || count == 0, "prompt");
    return std::span<const int32_t>(prompt, count);
  };
  return walsh::generate(session, tokens, options, callback, user, result);
}

walsh_status walsh_session_add_image(walsh_session* session, const void* data, size_t length) {
  return guarded([&] {
    require(session != nullptr, "session");
    require(data != nullptr || length == 0, "data");
    session->images.emplace_back(static_cast<const char*>(data), length);
  });
}

void walsh_session_stop(walsh_session* session) {
  session->stop = true;
}

}  // extern "C"
