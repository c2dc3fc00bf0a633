#include "serve/served_model.h"

#include <system_error>
#include <utility>

namespace walsh {
namespace {

SchedulerOptions options_of(SchedulerOptions options, const LoadedModel& model,
                            PrefixStore* store) {
  options.drafts = model.drafts();
  options.store = store;
  return options;
}

}  // namespace

ServedModel::ServedModel(const ServedModelOptions& options, std::shared_ptr<Door> door,
                         std::shared_ptr<Metrics> metrics)
    : pool_(options.threads),
      model_(options.load(pool_)),
      store_(options.open_store ? options.open_store(model_) : nullptr),
      scheduler_(model_.model, options_of(options.scheduler, model_, store_.get())),
      service_(
          model_, scheduler_, options.service,
          model_.chat ? make_chat_prompt(*model_.chat, options.template_variables) : ChatPrompt(),
          std::move(door), metrics),
      metrics_(std::move(metrics)),
      steps_([this] { scheduler_.run(); }) {
  try {
    preparation_ = std::thread([this] { prepare(); });
  } catch (const std::system_error&) {  // the first request that needs the vocabulary builds it
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
