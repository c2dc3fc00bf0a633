// Makes the prompts of chats, in which there may be images.
#include <utility>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/image_parts.h"
#include "serve/service.h"

namespace walsh {

Service::ChatText Service::chat_prompt(OrderedJson& body) const {
  if (!chat_)
    throw ApiError(400, "the model has no chat template: use /v1/completions", "messages");
  ChatText text;
  text.images = take_images(body, *model_.images);
  text.prompt = chat_(body);
  if (text.images.empty()) return text;
  try {
    text.prompt = model_.images->prompt_text(std::move(text.prompt));
  } catch (const Error& e) {
    throw image_error(e);
  }
  return text;
}

void Service::show_images(const ChatText& text, const std::string& owner,
                          std::vector<int32_t>& prompt, std::vector<PromptImage>& images) const {
  if (text.images.empty()) return;
  try {
    model_.images->show(prompt, text.images, images, owner, scheduler_.positions());
  } catch (const Error& e) {
    throw image_error(e);
  }
}

int64_t Service::count_chat(const HttpRequest& request, OrderedJson& body) const {
  const ChatText text = chat_prompt(body);
  std::vector<int32_t> tokens = model_.tokenizer.encode(text.prompt, false);
  std::vector<PromptImage> images;
  show_images(text, owner_of(request, body), tokens, images);
  return std::ssize(tokens);
}

}  // namespace walsh
