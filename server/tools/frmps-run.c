// frmps-run: runs a program under the service, by putting our libcuda.so.1 in front of the
// driver's. Fails closed: without the service the program does not run, unless --allow-native
// permits the direct use of the GPU.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "server/tools/gpus.h"
#include "server/tools/manual.h"
#include "server/tools/past.h"
#include "server/tools/shim.h"
#include "server/version.h"

/* Exit codes beside those of sysexits.h; otherwise the program's exit code is passed on. */
#define EXIT_CANNOT_RUN 126
#define EXIT_NOT_FOUND	127

struct options {
	bool allow_native, nvml;
	const char *socket, *recovery, *trace;
};

/* Return: 0 to go on, or the exit code + 1. */
static int parse(int count, char **arguments, struct options *options)
{
	int option;

	while ((option = manual_option(&manual_run, count, arguments, true)) >= 0) {
		switch (option) {
		case 'n':
			options->allow_native = true;
			break;
		case 'm':
			options->nvml = true;
			break;
		case 's':
			options->socket = optarg;
			break;
		case 'r':
			options->recovery = optarg;
			break;
		case 't':
			options->trace = optarg;
			break;
		case 'v':
			puts("frmps-run " SERVER_VERSION);
			return manual_flush(stdout) + 1;
		case 'h':
			return manual_help(&manual_run, stdout) + 1;
		default:
			return manual_wrong(&manual_run, NULL) + 1;
		}
	}
	if (options->recovery && strcmp(options->recovery, "fail") && strcmp(options->recovery, "replay"))
		return manual_wrong(
			       &manual_run, "--recovery is fail or replay, not '%s'", options->recovery) +
		       1;
	if (optind == count)
		return manual_wrong(&manual_run, "no program is named") + 1;
	return 0;
}

/* Return: 0, or why a file is no program that can be run: an errno. */
static int look_at_program(const char *path, struct stat *status)
{
	if (stat(path, status) < 0)
		return errno;
	if (S_ISDIR(status->st_mode))
		return EISDIR;
	return access(path, X_OK) < 0 ? errno : 0;
}

/* The file that execvp() would run. Return: 0 or an errno: the problem of the first file that
 * exists, else ENOENT. */
static int find_program(const char *name, char *path, size_t size, struct stat *status)
{
	const char *list = getenv("PATH");
	int error = ENOENT, now;

	if (strchr(name, '/')) {
		snprintf(path, size, "%s", name);
		return look_at_program(path, status);
	}
	for (const char *at = list ? list : "/bin:/usr/bin"; at;
		at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
		int length = (int)strcspn(at, ":");

		snprintf(path, size, "%.*s%s%s", length, at, length ? "/" : "./", name);
		now = look_at_program(path, status);
		if (!now)
			return 0;
		if (now == EACCES && error == ENOENT)
			error = now;
	}
	return error;
}

/* Programs that gain rights at exec: the loader ignores LD_LIBRARY_PATH for them. */
static bool gains_rights(const char *path, const struct stat *status)
{
	char value[64];

	if ((status->st_mode & S_ISUID) && status->st_uid != geteuid())
		return true;
	if ((status->st_mode & S_ISGID) && (status->st_mode & S_IXGRP) && status->st_gid != getegid())
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", value, sizeof(value)) > 0;
}

/* Puts something in front of a list of the loader's. */
static bool put_first(const char *variable, const char *directory, const char *file)
{
	const char *old = getenv(variable);
	char *list;
	bool ok;

	if (asprintf(&list, "%s%s%s%s", directory, file, old && *old ? ":" : "", old && *old ? old : "") < 0)
		return false;
	ok = setenv(variable, list, 1) == 0;
	free(list);
	return ok;
}

/* Makes sure that the file can be made, and removes it: the library replaces no file. Return: 0 or
 * an exit code. */
static int make_way(const char *path)
{
	struct stat status;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
	int error = fd < 0 || fstat(fd, &status) ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;

	if (fd >= 0)
		close(fd);
	if (!error && unlink(path))
		error = errno;
	if (!error)
		return 0;
	fprintf(stderr, "frmps-run: --trace: %s: %s\n", path,
		error == EINVAL ? "this is no ordinary file" : strerror(error));
	return EX_CANTCREAT;
}

/* The program may go to another directory. Return: as make_way() */
static int prepare_trace(const char *path, const char *library)
{
	char directory[PATH_MAX] = "", whole[2 * PATH_MAX + 1];
	int r = make_way(path);

	if (r)
		return r;
	if (*path != '/' && !getcwd(directory, sizeof(directory))) {
		fprintf(stderr, "frmps-run: --trace: %s: %s\n", path, strerror(errno));
		return EX_CANTCREAT;
	}
	snprintf(whole, sizeof(whole), "%s%s%s", directory, *directory ? "/" : "", path);
	if (setenv("FRMPS_TRACE", whole, 1) < 0 || setenv("NVTX_INJECTION64_PATH", library, 0) < 0) {
		fprintf(stderr, "frmps-run: out of memory\n");
		return EX_UNAVAILABLE;
	}
	return 0;
}

/* NVIDIA's NVML shows all GPUs of the machine, and programs such as PyTorch count by it. Lets them
 * see the service's alone, as our NVML does. Return: false without memory */
static bool hide_other_gpus(const struct options *options, const char *socket)
{
	const unsigned gpus = options->nvml || getenv("CUDA_VISIBLE_DEVICES") ? 0 : gpus_count("");
	char list[GPUS_LIST_BYTES];
	struct ask_devices devices;

	/* A service has one GPU at least. */
	if (gpus < 2 || ask_devices(socket, false, &devices) || !gpus_list_fewer(&devices, gpus, list))
		return true;
	return setenv("CUDA_VISIBLE_DEVICES", list, 1) == 0;
}

/* Everything that sends the program's CUDA calls to the service. Return: 0 or an exit code. */
static int prepare(const struct options *options, const char *socket, enum past past)
{
	char *directory = shim_directory(), library[PATH_MAX + 32];
	int r = 0;

	if (!directory) {
		fprintf(stderr, "frmps-run: libcuda.so.1 of frmps is not found beside this program; "
				"FRMPS_SHIM_DIR can "
				"name its directory\n");
		return EX_UNAVAILABLE;
	}
	if (!put_first("LD_LIBRARY_PATH", directory, "") ||
		(options->nvml && !put_first("LD_LIBRARY_PATH", directory, "/nvml")) ||
		setenv("FRMPS_SOCKET", socket, 1) < 0 || !hide_other_gpus(options, socket) ||
		(past == PAST_FOLDER && !put_first("LD_PRELOAD", directory, "/libcuda.so.1")) ||
		(options->recovery && setenv("FRMPS_RECOVERY", options->recovery, 1) < 0)) {
		fprintf(stderr, "frmps-run: out of memory\n");
		free(directory);
		return EX_UNAVAILABLE;
	}
	snprintf(library, sizeof(library), "%s/libcuda.so.1", directory);
	if (options->trace)
		r = prepare_trace(options->trace, library);
	free(directory);
	return r;
}

/* Reports why a program cannot be run. Return: the exit code */
static int say_unrunnable(const char *name, int error, bool begun)
{
	const char *why = strerror(error);

	if (error == ENOENT && !begun)
		why = strchr(name, '/') ? "there is no such program" : "there is no such program in PATH";
	else if (error == ENOENT)
		why = "its interpreter (first line, or dynamic loader) is not there";
	else if (error == EACCES)
		why = "permission denied: the file, or a directory on the way to it, is not executable for "
		      "this user";
	else if (error == ENOEXEC)
		why = "wrong format: neither a program for this machine nor a script that begins with #!";
	fprintf(stderr, "frmps-run: %s: %s\n", name, why);
	return error == ENOENT && !begun ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

static int check_rights(const char *path, const struct stat *status)
{
	if (!gains_rights(path, status))
		return 0;
	fprintf(stderr,
		"frmps-run: %s gains rights when it is run (set-uid, set-gid or capabilities): the loader "
		"would ignore our library, and it would use the GPU without the service\n",
		path);
	return EX_NOPERM;
}

/* Scripts that are run by scripts, at most. */
#define SCRIPTS 4

/* Finds the reason why the loader would bypass our library, for the program or for the interpreter
 * of this script. Return: 0, or an exit code */
static int check_past(const char *path, enum past *ret_past)
{
	char program[PATH_MAX], interpreter[PATH_MAX], library[PATH_MAX];
	struct stat status;

	snprintf(program, sizeof(program), "%s", path);
	for (int i = 0; i < SCRIPTS && past_interpreter(program, interpreter); i++)
		if (find_program(interpreter, program, sizeof(program), &status))
			break;
	*ret_past = past_of_program(program, library);
	if (*ret_past == PAST_FOLDER)
		fprintf(stderr,
			"frmps-run: %s looks for libraries in a folder of its own first (DT_RPATH) and would "
			"find "
			"%s; the service's is loaded before it (LD_PRELOAD)\n",
			program, library);
	if (*ret_past != PAST_NAME)
		return 0;
	fprintf(stderr,
		"frmps-run: %s is linked with %s by its full path: it would use the GPU without the "
		"service\n",
		program, library);
	return EX_NOPERM;
}

static int run(const char *path, char **arguments)
{
	execv(path, arguments);
	return say_unrunnable(arguments[0], errno, true);
}

int main(int count, char **arguments)
{
	struct options options = {0};
	char socket[PLACE_BYTES], text[700], path[PATH_MAX];
	struct stat status;
	int r = parse(count, arguments, &options), error;
	enum past past;
	bool native;

	if (r)
		return r - 1;
	arguments += optind;
	/* A service that refuses further operators is there, and serves programs. */
	native = ask_find(options.socket, socket, text, sizeof(text)) < 0 ||
		 ask_any(socket, text, sizeof(text)) < 0;
	if (native && !options.allow_native) {
		fprintf(stderr,
			"frmps-run: %s; %s is not run (frmpsctl doctor says what to do; --allow-native lets "
			"it use the GPU directly)\n",
			text, arguments[0]);
		return EX_UNAVAILABLE;
	}
	error = find_program(arguments[0], path, sizeof(path), &status);
	if (error)
		return say_unrunnable(arguments[0], error, false);
	if (native) {
		fprintf(stderr, "frmps-run: %s; %s uses the GPU directly, without protection%s\n", text,
			arguments[0], options.trace ? " and without a trace" : "");
		return run(path, arguments);
	}
	r = check_rights(path, &status);
	r = r ? r : check_past(path, &past);
	r = r ? r : prepare(&options, socket, past);
	return r ? r : run(path, arguments);
}
