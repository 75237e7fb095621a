// See reload.h.

#include "server/control/reload.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "server/config/config.h"
#include "server/control/caller.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/session/daemon.h"
#include "server/session/guarantee.h"
#include "server/session/session.h"

struct reload {
	uv_work_t work;
	struct daemon *daemon;
	struct caller *caller; /* NULL: gone */
	uint64_t id;
	reload_done_fn *done;
	/* Belongs to the thread until its end. */
	struct config config;
	int outcome; /* of config_load() */
	char text[CONFIG_WRONG_MAX];
};

/* In a thread of the pool. The daemon's own configuration never changes. */
static void read_file(uv_work_t *work)
{
	struct reload *reload = work->data;
	const struct config *now = reload->daemon->config;

	reload->outcome = config_load(&reload->config, now->file, now->settings, now->setting_count,
		reload->text, sizeof(reload->text));
	reload->config.rules.device = now->rules.device;
}

static void take_effect(struct reload *reload)
{
	struct daemon *daemon = reload->daemon;
	struct session *session;

	config_rules(&reload->config, &daemon->rules);
	store_put_single(daemon->store, RECORD_RULES, &daemon->rules, sizeof(daemon->rules));
	TAILQ_FOREACH (session, &daemon->sessions, link)
		session_set_terms(session);
	session_wake_all(daemon);
	config_differences(daemon->config, &reload->config, reload->text, sizeof(reload->text));
}

/* A wrong line may contain any bytes, which JSON does not allow. */
static void say_wrong(char *text)
{
	char *end;

	for (char *line = text; line; line = end ? end + 1 : NULL) {
		end = strchr(line, '\n');
		if (end)
			*end = '\0';
		log_clean(line);
		log_warning("the configuration is not read again, everything stays as it is: %s", line);
		if (end)
			*end = '\n';
	}
}

static void on_read(uv_work_t *work, int status)
{
	struct reload *reload = work->data;
	bool good = !status && !reload->outcome;

	if (good)
		good = !guarantee_refuses_rules(
			reload->daemon, &reload->config.rules, reload->text, sizeof(reload->text));
	if (good)
		take_effect(reload);
	if (!good)
		say_wrong(reload->text);
	else if (*reload->text)
		log_warning("the configuration was read again; the next start of the service applies changes "
			    "of %s",
			reload->text);
	else
		log_info("the configuration was read again");
	reload->daemon->reload = NULL;
	if (reload->caller)
		reload->done(reload->caller, reload->id, good, reload->text);
	free(reload);
}

const char *reload_begin(struct caller *caller, uint64_t id, reload_done_fn *done)
{
	struct daemon *daemon = caller->daemon;
	struct reload *reload;

	if (daemon->reload)
		return "the configuration is being read again already";
	reload = calloc(1, sizeof(*reload));
	if (!reload)
		return "the service is out of memory";
	*reload = (struct reload){.work = {.data = reload},
		.daemon = daemon,
		.caller = caller,
		.id = id,
		.done = done,
		.text = "the configuration cannot be read now"};
	if (uv_queue_work(daemon->loop, &reload->work, read_file, on_read)) {
		free(reload);
		return "the service cannot start a thread";
	}
	daemon->reload = reload;
	return NULL;
}

void reload_forget(struct daemon *daemon, const struct caller *caller)
{
	if (daemon->reload && daemon->reload->caller == caller)
		daemon->reload->caller = NULL;
}
