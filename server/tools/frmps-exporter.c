// frmps-exporter: Prometheus asks over HTTP, and the exporter asks the service over the control
// socket, as frmpsctl status does. The exporter is no part of the service: nobody else notices if
// it is missing or hangs. The main thread waits for SIGTERM; the HTTP library's thread answers one
// request after the other. The process owns the listening socket.

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/tools/ask.h"
#include "server/tools/manual.h"
#include "server/tools/metrics.h"
#include "server/version.h"

#define LISTEN_DEFAULT	"127.0.0.1:9836"
#define CONNECTIONS_MAX 32u
/* Of a silent connection. */
#define IDLE_SECONDS 2u

struct options {
	const char *socket, *listen;
};

/* ---- answers ---- */

/* The service's status. NULL, with a reason on standard error: no answer. */
static json_t *ask_status(const char *path)
{
	char text[400], *answer;
	json_t *status;

	if (ask(path, "status", &answer, text, sizeof(text))) {
		fprintf(stderr, "frmps-exporter: %s\n", text);
		return NULL;
	}
	status = json_loads(answer, 0, NULL);
	free(answer);
	return status;
}

static char *make_metrics(const char *path)
{
	json_t *statuses[PLACE_DEVICES] = {NULL};
	struct ask_devices devices;
	char beside[PLACE_BYTES], *text;

	if (ask_devices(path, true, &devices) || devices.number)
		devices.count = 1;
	for (unsigned i = 0; i < devices.count; i++)
		if (place_of_device(path, i, beside))
			statuses[i] = ask_status(beside);
	text = metrics_text(statuses, devices.count);
	for (unsigned i = 0; i < devices.count; i++)
		json_decref(statuses[i]);
	return text;
}

static enum MHD_Result send_text(
	struct MHD_Connection *connection, unsigned code, char *text, const char *type, bool is_ours)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		strlen(text), text, is_ours ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	result = MHD_queue_response(connection, code, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_size, void **state)
{
	static char elsewhere[] = "frmps-exporter: /metrics\n", unknown[] = "only GET /metrics\n";
	char *text;

	(void)version;
	(void)upload;
	(void)upload_size;
	(void)state;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, unknown, "text/plain", false);
	if (strcmp(url, "/") == 0)
		return send_text(connection, MHD_HTTP_OK, elsewhere, "text/plain", false);
	if (strcmp(url, "/metrics") != 0)
		return send_text(connection, MHD_HTTP_NOT_FOUND, unknown, "text/plain", false);
	text = make_metrics(context);
	return text ? send_text(
			      connection, MHD_HTTP_OK, text, "text/plain; version=0.0.4; charset=utf-8", true)
		    : MHD_NO;
}

/* ---- listening ---- */

/* Splits ADDRESS:PORT or [ADDRESS]:PORT, in place. Return: false for any other text */
static bool split(char *text, char **ret_address, char **ret_port)
{
	char *colon = strrchr(text, ':');

	if (!colon || !colon[1])
		return false;
	*colon = '\0';
	*ret_port = colon + 1;
	if (*text == '[' && colon > text && colon[-1] == ']') {
		colon[-1] = '\0';
		text++;
	}
	*ret_address = text;
	return *text != '\0';
}

/* getaddrinfo() maps a number beyond the largest port, and a negative number, to another port. */
static bool is_port(const char *text)
{
	uint64_t port;

	return config_parse_number(text, false, &port) && port <= UINT16_MAX;
}

/* Return: a socket, or -1; errno is 0 for a text that is no address */
static int listen_on(const char *where)
{
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char copy[256], *address, *port;
	int fd, on = 1;

	snprintf(copy, sizeof(copy), "%s", where);
	errno = 0;
	if (!split(copy, &address, &port) || !is_port(port) || getaddrinfo(address, port, &hints, &found)) {
		errno = 0;
		return -1;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
			       bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, SOMAXCONN))) {
		int error = errno;

		close(fd);
		errno = error;
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

/* Port 0 asks for any free port, so the real port is printed. */
static void say_where(int fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	char host[128], port[16];

	if (getsockname(fd, (struct sockaddr *)&address, &size) ||
		getnameinfo((struct sockaddr *)&address, size, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	printf(address.ss_family == AF_INET6 ? "http://[%s]:%s/metrics\n" : "http://%s:%s/metrics\n", host,
		port);
	fflush(stdout);
}

static int serve(int fd, char *path)
{
	struct MHD_Daemon *daemon;
	sigset_t ends;
	int number;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	signal(SIGPIPE, SIG_IGN);
	daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL, answer,
		path, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_END);
	if (!daemon) {
		fputs("frmps-exporter: the HTTP server does not start\n", stderr);
		close(fd);
		return EX_OSERR;
	}
	say_where(fd);
	sigwait(&ends, &number);
	MHD_stop_daemon(daemon);
	return 0;
}

/* Return: 0 to go on, or the exit code + 1. */
static int parse(int count, char **arguments, struct options *options)
{
	int option;

	while ((option = manual_option(&manual_exporter, count, arguments, false)) >= 0) {
		switch (option) {
		case 'l':
			options->listen = optarg;
			break;
		case 's':
			options->socket = optarg;
			break;
		case 'v':
			puts("frmps-exporter " SERVER_VERSION);
			return manual_flush(stdout) + 1;
		case 'h':
			return manual_help(&manual_exporter, stdout) + 1;
		default:
			return manual_wrong(&manual_exporter, NULL) + 1;
		}
	}
	return optind == count
		       ? 0
		       : manual_wrong(&manual_exporter, "unexpected argument '%s'", arguments[optind]) + 1;
}

int main(int count, char **arguments)
{
	struct options options = {.listen = LISTEN_DEFAULT};
	int r = parse(count, arguments, &options), fd;
	char path[PLACE_BYTES], text[700];

	if (r)
		return r - 1;
	if (ask_find(options.socket, path, text, sizeof(text))) {
		fprintf(stderr, "frmps-exporter: %s\n", text);
		return EX_UNAVAILABLE;
	}
	fd = listen_on(options.listen);
	if (fd < 0 && !errno)
		return manual_wrong(&manual_exporter, "--listen: '%s' is no ADDRESS:PORT", options.listen);
	if (fd < 0) {
		fprintf(stderr, "frmps-exporter: %s: %s\n", options.listen, strerror(errno));
		return EX_OSERR;
	}
	return serve(fd, path);
}
