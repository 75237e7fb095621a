// See status.h.

#include "tests/system/status.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"

json_t *status_of(const struct service *service)
{
	char *text = service_status(service);
	json_t *json = text ? json_loads(text, 0, NULL) : NULL;

	ck_assert_ptr_nonnull(json);
	free(text);
	return json;
}

int64_t status_counter(const struct service *service, const char *name)
{
	json_t *json = status_of(service), *value = json_object_get(json_object_get(json, "counters"), name);
	int64_t number = json_integer_value(value);

	ck_assert(json_is_integer(value));
	json_decref(json);
	return number;
}

pid_t status_daemon(const struct service *service)
{
	json_t *status = status_of(service);
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "pid"));

	json_decref(status);
	ck_assert_int_ne(pid, service->pid);
	return pid;
}

pid_t status_holder(const struct service *service)
{
	json_t *status = status_of(service);
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "holder"));

	json_decref(status);
	return pid;
}

pid_t status_active(const struct service *service)
{
	json_t *json = status_of(service), *domain, *executor;
	pid_t pid = 0;
	size_t i, j;

	json_array_foreach (json_object_get(json, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "executors"), j, executor)
			if (!strcmp(json_string_value(json_object_get(executor, "role")), "active"))
				pid = (pid_t)json_integer_value(json_object_get(executor, "pid"));
	json_decref(json);
	ck_assert_int_gt(pid, 0);
	return pid;
}

const json_t *status_client(const json_t *status, pid_t pid)
{
	const json_t *domain, *client, *found = NULL;
	size_t i, j;

	json_array_foreach (json_object_get(status, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			if (json_integer_value(json_object_get(client, "pid")) == pid)
				found = client;
	return found;
}

long long status_number(const struct service *service, pid_t pid, const char *name)
{
	json_t *status = status_of(service);
	const json_t *client = status_client(status, pid);
	long long number = client ? json_integer_value(json_object_get(client, name)) : -1;

	json_decref(status);
	return number;
}

bool status_is_in(const struct service *service, pid_t pid, const char *state)
{
	json_t *status = status_of(service);
	const json_t *client = status_client(status, pid);
	bool is = client && !strcmp(json_string_value(json_object_get(client, "state")), state);

	json_decref(status);
	return is;
}

static long long at_least_none(long long number)
{
	return number < 0 ? 0 : number;
}

long long status_session(const struct service *service, pid_t pid)
{
	return at_least_none(status_number(service, pid, "session"));
}

long long status_moves(const struct service *service, pid_t pid)
{
	return at_least_none(status_number(service, pid, "promotions"));
}

/* Nothing says that something has come to be so: it is asked for. */
static bool ask_again(time_t begin)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	nanosleep(&pause, NULL);
	return time(NULL) - begin < 60;
}

static bool is_complete(const json_t *domain)
{
	size_t active = 0, warm = 0, count = json_array_size(json_object_get(domain, "executors")), i;
	json_t *executor;

	json_array_foreach (json_object_get(domain, "executors"), i, executor) {
		const char *state = json_string_value(json_object_get(executor, "state"));

		active += !strcmp(state, "active");
		warm += !strcmp(state, "warm") && !json_integer_value(json_object_get(executor, "behind"));
	}
	return active == 1 && warm == 1 && count == 2;
}

static bool is_empty(const json_t *domain)
{
	return !json_array_size(json_object_get(domain, "clients"));
}

static bool rests(const json_t *domain)
{
	return is_complete(domain) && is_empty(domain);
}

static void await_domains(const struct service *service, bool (*is_so)(const json_t *), const char *otherwise)
{
	time_t begin = time(NULL);
	bool all;

	do {
		json_t *json = status_of(service), *domain;
		size_t i;

		all = true;
		json_array_foreach (json_object_get(json, "domains"), i, domain)
			all &= is_so(domain);
		json_decref(json);
		ck_assert_msg(all || ask_again(begin), "%s", otherwise);
	} while (!all);
}

static pid_t serving_keeper(const struct service *service)
{
	json_t *status = status_of(service), *keeper = json_object_get(status, "keeper");
	const char *state = json_string_value(json_object_get(keeper, "state"));
	pid_t pid = 0;

	if (state && !strcmp(state, "serving"))
		pid = (pid_t)json_integer_value(json_object_get(keeper, "pid"));
	json_decref(status);
	return pid;
}

pid_t status_keeper(const struct service *service)
{
	time_t begin = time(NULL);
	pid_t pid;

	while (!(pid = serving_keeper(service)))
		ck_assert_msg(ask_again(begin), "no keeper serves");
	return pid;
}

void status_await_executors(const struct service *service)
{
	await_domains(service, is_complete, "the service does not get its executors ready");
}

void status_await_faults(const struct service *service, int number)
{
	ck_assert(service_log_wait(service, "verdict: culprit is process", number, 60));
}

void status_replace_active(const struct service *service, int number)
{
	status_await_executors(service);
	ck_assert(service_kill_active(service));
	ck_assert(service_log_wait(service, "promotion: executor", number, 60));
}

void status_await_no_sessions(const struct service *service)
{
	await_domains(service, is_empty, "sessions do not end");
}

void status_await_rest(const struct service *service)
{
	await_domains(service, rests, "the service does not come to rest");
}

void status_await_no_memory(const struct service *service)
{
	time_t begin = time(NULL);

	status_await_rest(service);
	while (service_count_chunks(service))
		ck_assert_msg(ask_again(begin), "%d chunks are left", service_count_chunks(service));
}

void status_footprint(const struct service *service, int *ret_fds, int *ret_threads)
{
	status_await_rest(service);
	service_footprint(service, ret_fds, ret_threads);
}

void status_await_commands(const struct service *service, pid_t pid, long long least)
{
	time_t begin = time(NULL);

	while (status_number(service, pid, "commands") < least)
		ck_assert_msg(ask_again(begin), "%d does not get to %lld commands", (int)pid, least);
}

void status_await_bytes(const struct service *service, pid_t pid, const char *kind, long long most)
{
	time_t begin = time(NULL);

	while (status_number(service, pid, kind) > most)
		ck_assert_msg(ask_again(begin), "%d does not get down to %lld %s", (int)pid, most, kind);
}

bool status_isolate(const struct service *service, pid_t pid, char *ret_why, size_t bytes)
{
	char number[24], *answer = NULL;
	const char *argument = number, *why;
	const struct wire_names arguments = {&argument, 1};
	json_t *root;

	snprintf(number, sizeof(number), "%lld", status_session(service, pid));
	if (ask_with(service->socket, "isolate", &arguments, 60, &answer, ret_why, bytes))
		return false;
	root = json_loads(answer, 0, NULL);
	why = json_string_value(json_object_get(root, "reason"));
	snprintf(ret_why, bytes, "%s",
		json_is_true(json_object_get(root, "moved")) ? ""
		: why					     ? why
							     : "for no reason");
	free(answer);
	json_decref(root);
	return true;
}
