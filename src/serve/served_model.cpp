#include "serve/served_model.h"

#include <system_error>
#include <utility>

namespace walsh {
namespace {

SchedulerOptions with_drafts(SchedulerOptions options, const LoadedModel& model) {
  options.drafts = model.drafts();
  return options;
}

}  // namespace

ServedModel::ServedModel(const ServedModelOptions& options, std::shared_ptr<Door> door,
                         std::shared_ptr<Metrics> metrics)
    : pool_(options.threads),
      model_(options.load(pool_)),
      scheduler_(model_.model, with_drafts(options.scheduler, model_)),
      service_(
          model_, scheduler_, options.service,
          model_.chat ? make_chat_prompt(*model_.chat, options.template_variables) : ChatPrompt(),
          std::move(door), metrics),
      metrics_(std::move(metrics)),
      steps_([this] { scheduler_.run(); }) {
  try {
    preparation_ = std::thread([this] { prepare(); });
  } catch (const std::system_error&) {  // the first request that needs it does it
  }
}

ServedModel::~ServedModel() {
  if (preparation_.joinable()) preparation_.join();
  scheduler_.stop();
  steps_.join();
  if (metrics_) metrics_->keep(scheduler_.counts());
}

// Builds the vocabulary for grammars now, so that the first request that needs it does not wait.
void ServedModel::prepare() const {
  try {
    model_.grammars->vocabulary(model_.tokenizer, model_.model.config.vocab);
  } catch (...) {  // the request that needs it tries again and reports the error
  }
}

}  // namespace walsh
