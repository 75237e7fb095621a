// The configuration's parser and the children's environment.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/role.h"
#include "tests/lib/suite.h"

static char path[] = "/tmp/frmps-config-XXXXXX";

static void write_file(const char *text)
{
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

TEST(config, defaults_are_those_of_the_table)
{
	struct config config;

	config_init(&config);
	ck_assert_str_eq(config.socket, "");
	ck_assert_str_eq(config.devices, "all");
	ck_assert_uint_eq(config.standbys, 1);
	ck_assert_uint_eq(config.spin_us, 10000);
	ck_assert_uint_eq(config.domain_idle_seconds, 60);
	ck_assert_uint_eq(config.recovery, CONFIG_RECOVERY_FAIL);
	ck_assert(config_uses_gpu(&config));
}

TEST(config, file_is_read)
{
	struct config config;
	char text[256];

	write_file("# comment\nsocket = /tmp/x.sock\nbackend=/a/b.so\nmemory_limit = 3G\npinned_limit = "
		   "64K\nstandbys = 0\n");
	config_init(&config);
	ck_assert_int_eq(config_read(&config, path, text, sizeof(text)), 0);
	ck_assert_str_eq(config.socket, "/tmp/x.sock");
	ck_assert_str_eq(config.backend, "/a/b.so");
	ck_assert(!config_uses_gpu(&config));
	ck_assert_uint_eq(config.memory_limit, UINT64_C(3) << 30);
	ck_assert_uint_eq(config.pinned_limit, 65536);
	ck_assert_uint_eq(config.standbys, 0);
	unlink(path);
}

/* Text of a file, line and key that the error must name. */
static const struct {
	const char *text;
	int line;
	const char *part;
} bad[] = {
	{"devices = 0\nnonsense = 1\n", 2, "nonsense: no such key (frmps-server"},
	{"device = 0\n", 1, "device: no such key, but devices is one (frmps-server"},
	{"\n\nstandbys = many\n", 3, "standbys: \"many\" is not a number"},
	{"standbys = 9\n", 1, "standbys: 9 is out of range, allowed is 0 to 8"},
	{"standbys = -1\n", 1, "standbys: \"-1\" is not a number"},
	{"backend = ./b.so\n", 1, "backend: \"./b.so\" is neither a name nor an absolute path"},
	{"backend =\n", 1, "backend: \"\" is neither a name nor"},
	{"memory_limit = 99999999999999999999\n", 1, "memory_limit"},
	{"memory_limit = 17179869184G\n", 1, "memory_limit"},
	{"memory_limit = 1X\n", 1, "memory_limit: \"1X\" is not a number of bytes"},
	{"[service]\ndevices = 0\n", 1,
		"a section is [user NAME], [cgroup PATTERN], [program PATTERN] or [device NUMBER]"},
	{"[user]\n", 1, "a section is [user NAME]"},
	{"[user 7\n", 1, "not a section of the form"},
	{"[user 7] memory_limit = 1\n", 1, "not a section of the form"},
	{"[user no such user]\n", 1, "there is no user no such user"},
	{"[user 4294967295]\n", 1, "there is no user 4294967295"},
	{"[program python3]\n", 1, "python3: a path begins with /"},
	{"[device first]\n", 1, "first: a device is a number below 64"},
	{"[device 64]\n", 1, "64: a device is a number below 64"},
	{"devices =\n", 1, "devices: \"\" is neither a number nor a UUID"},
	{"devices = 0,first\n", 1, "devices: \"first\" is neither a number nor a UUID"},
	{"[user 7]\nstandbys = 1\n", 2, "standbys: is for the whole service"},
	{"[user 7]\ndevice_memory = 1G\n", 2, "device_memory: is a device's"},
	{"[program *]\nswap_host_bytes = 1G\n", 2, "swap_host_bytes: is a user's"},
	{"[user 7]\nnonsense = 1\n", 2, "nonsense: no such key"},
	{"sm_percent = 0\n", 1, "sm_percent: 0 is out of range, allowed is 1 to 100"},
	{"weight = 0\n", 1, "weight: 0 is out of range, allowed is 1 to 1000"},
	{"[user 7]\nweight = 1001\n", 2, "weight: 1001 is out of range, allowed is 1 to 1000"},
	{"[user 7]\nclass = batch\n", 2, "class: \"batch\" is not one of online|offline"},
	{"[user 7]\nisolation = none\n", 2, "isolation: \"none\" is not one of user|client"},
	{"[user 7]\nmemory_limit = 1\nmemory_limit = 2\n", 3, "memory_limit: line 2 sets it already"},
	{"devices = 0\nwhat is this\n", 2, "not a line of the form"},
	{"standbys = 9\nbackend = gpu\n", 1, "standbys"},
	{"what is this\nstandbys = 9\n", 1, "not a line of the form"},
	{"devices = 0\nstandbys = 1\n\nstandbys = 1\n", 4, "standbys: line 2 sets it already"},
	{"standbys = 1#2\n", 1, "standbys: \"1#2\" is not a number"},
	{"= 5\n", 1, "not a line of the form"},
	{"memory_limit = 1G\nmemory_guarantee = 2G\n[user 7]\n", 2, "memory_guarantee is more than"},
	{"[user 7]\nmemory_guarantee = 2G\n\nmemory_limit = 1G\n", 4, "memory_guarantee is more than"},
};

TEST_LOOP(config, errors_name_file_line_and_key, 0, sizeof(bad) / sizeof(bad[0]))
{
	struct config config;
	char text[512], place[128];

	write_file(bad[_i].text);
	config_init(&config);
	ck_assert_int_eq(config_read(&config, path, text, sizeof(text)), CONFIG_E_INVALID);
	snprintf(place, sizeof(place), "%s:%d: ", path, bad[_i].line);
	ck_assert_msg(strncmp(text, place, strlen(place)) == 0, "%s", text);
	ck_assert_msg(strstr(text, bad[_i].part) != NULL, "%s", text);
	unlink(path);
}

/* What stands behind a line that is wrong is looked at all the same. */
TEST(config, every_wrong_line_is_named)
{
	struct config config;
	char text[1024], wanted[1024];

	write_file("nonsense\x1b = 1\nstandbys = 2\nwhat is this\n[users]\nweight = 0\nweight = 7\n[user 7]\n"
		   "weight = 8\nweight = 9\n");
	config_init(&config);
	ck_assert_int_eq(config_read(&config, path, text, sizeof(text)), CONFIG_E_INVALID);
	snprintf(wanted, sizeof(wanted),
		"%s:1: nonsense?: no such key (frmps-server --help-config lists them)\n"
		"%s:3: not a line of the form \"key = value\"\n"
		"%s:4: a section is [user NAME], [cgroup PATTERN], [program PATTERN] or [device NUMBER]\n"
		"%s:5: weight: 0 is out of range, allowed is 1 to 1000\n"
		"%s:9: weight: line 8 sets it already",
		path, path, path, path, path);
	ck_assert_str_eq(text, wanted);
	/* Nobody has the keys of a section that cannot be. */
	ck_assert_uint_eq(config.weight, 100);
	/* For the rest there is no room. */
	strstr(wanted, ":5: ")[0] = '\0';
	ck_assert_int_eq(config_read(&config, path, text, strlen(wanted) + 32), CONFIG_E_INVALID);
	ck_assert_str_eq(strrchr(text, '\n'), "\nand 2 more");
	unlink(path);
}

TEST(config, a_comment_may_follow_a_value)
{
	struct config config;
	char text[256], file[2048];
	size_t end;

	strcpy(file, "standbys = 2 # spare\ndevices = 1\t; the second\nsocket = /tmp/a#b;c.sock #");
	end = strlen(file);
	memset(file + end, ' ', 1000);
	strcpy(file + end + 1000, "# and more\n");
	write_file(file);
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(config.standbys, 2);
	ck_assert_str_eq(config.devices, "1");
	ck_assert_str_eq(config.socket, "/tmp/a#b;c.sock");
	unlink(path);
}

static struct terms find(const struct config *config, const struct subject *subject)
{
	struct rules rules;
	struct terms terms;

	config_rules(config, &rules);
	terms_find(&rules, subject, &terms);
	return terms;
}

TEST(config, a_section_says_for_whom_a_key_holds)
{
	const struct subject user = {.uid = 7}, python = {.uid = 8, .executable = "/usr/bin/python3.11"},
			     pod = {.uid = 7,
				     .executable = "/usr/bin/python3.11",
				     .cgroup = "/kubepods.slice/kubepods-pod1.slice/x"};
	struct config config;
	struct rules rules;
	char text[256];

	write_file("memory_limit = 64G\nrecovery = replay\n"
		   "[user 7]  # the seventh\n  memory_limit = 2G\nisolation = client\n"
		   "[program /usr/bin/python3* ]\nmemory_limit = 3G\n"
		   "[cgroup /kubepods.slice/*]\npinned_limit = 1G\nisolation = user\n");
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(config.memory_limit, UINT64_C(64) << 30);
	ck_assert_uint_eq(find(&config, &(struct subject){0}).memory_limit, UINT64_C(64) << 30);
	ck_assert_uint_eq(find(&config, &(struct subject){0}).isolation, CONFIG_ISOLATION_USER);
	ck_assert_uint_eq(find(&config, &user).memory_limit, UINT64_C(2) << 30);
	ck_assert_uint_eq(find(&config, &user).isolation, CONFIG_ISOLATION_CLIENT);
	ck_assert_uint_eq(find(&config, &user).recovery, CONFIG_RECOVERY_REPLAY);
	ck_assert_uint_eq(find(&config, &user).pinned_limit, 0);
	ck_assert_uint_eq(find(&config, &python).memory_limit, UINT64_C(3) << 30);
	/* The last one holds. */
	ck_assert_uint_eq(find(&config, &pod).memory_limit, UINT64_C(3) << 30);
	ck_assert_uint_eq(find(&config, &pod).isolation, CONFIG_ISOLATION_USER);
	ck_assert_uint_eq(find(&config, &pod).pinned_limit, UINT64_C(1) << 30);
	config_rules(&config, &rules);
	terms_describe(&rules, &pod, text, sizeof(text));
	ck_assert_str_eq(text, "[user 7] [program /usr/bin/python3*] [cgroup /kubepods.slice/*]");
	ck_assert_ptr_null(terms_miss(&rules, &pod));
	ck_assert_ptr_nonnull(strstr(terms_miss(&rules, &python), "control group cannot be read"));
	ck_assert_ptr_nonnull(strstr(terms_miss(&rules, &user), "executable cannot be read"));
	terms_describe(&rules, &pod, text, 9);
	ck_assert_str_eq(text, "[user 7]");
	terms_describe(&rules, &(struct subject){0}, text, sizeof(text));
	ck_assert_str_eq(text, "");
	unlink(path);
}

TEST(config, a_section_may_be_for_one_device)
{
	const struct subject user = {.uid = 7};
	struct config config;
	struct rules rules;
	struct terms terms;
	char text[256];

	write_file("devices = 0,0\nmemory_limit = 64G\n[device 1]\nmemory_limit = 2G\ndevice_memory = 5G\n"
		   "[user 7]\nweight = 7\n[program *]\nweight = 9\n");
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(find(&config, &user).memory_limit, UINT64_C(64) << 30);
	config.rules.device = 1;
	ck_assert_uint_eq(find(&config, &user).memory_limit, UINT64_C(2) << 30);
	ck_assert_uint_eq(find(&config, &user).weight, 7);
	/* The device's own. */
	config_rules(&config, &rules);
	terms_of_device(&rules, &terms);
	ck_assert_uint_eq(terms.device_memory, UINT64_C(5) << 30);
	ck_assert_uint_eq(terms.memory_limit, UINT64_C(2) << 30);
	ck_assert_uint_eq(terms.weight, 100);
	unlink(path);
}

TEST(config, a_user_has_a_budget_whatever_his_programs_are)
{
	struct config config;
	struct rules rules;
	struct terms terms;
	char text[256];

	write_file(
		"swap_host_bytes = 3G\n[user 7]\nswap_host_bytes = 5G\n[program *]\nweight = 9\n[device 1]\n"
		"swap_host_bytes = 1G\n");
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	config_rules(&config, &rules);
	terms_of_user(&rules, 8, &terms);
	ck_assert_uint_eq(terms.swap_host_bytes, UINT64_C(3) << 30);
	ck_assert_uint_eq(terms.weight, 100);
	terms_of_user(&rules, 7, &terms);
	ck_assert_uint_eq(terms.swap_host_bytes, UINT64_C(5) << 30);
	rules.device = 1;
	terms_of_user(&rules, 7, &terms);
	ck_assert_uint_eq(terms.swap_host_bytes, UINT64_C(1) << 30);
	unlink(path);
}

/* As systemd names a control group whose unit has a dash. */
TEST(config, backslash_of_a_control_group_is_one)
{
	const struct subject scope = {.cgroup = "/machine.slice/machine-qemu\\x2d1.scope"};
	struct config config;
	char text[256];

	write_file("[cgroup /machine.slice/machine-qemu\\x2d1.scope]\nmemory_limit = 1G\n");
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(find(&config, &scope).memory_limit, UINT64_C(1) << 30);
	unlink(path);
}

/* Some editors begin a file with a byte order mark. */
TEST(config, a_section_at_the_start_of_a_file_is_one)
{
	struct config config;
	char text[256];

	write_file("\xef\xbb\xbf[user 7]\nweight = 7\n");
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(config.weight, 100);
	ck_assert_uint_eq(config.rules.count, 1);
	unlink(path);
}

TEST(config, users_have_names)
{
	struct config config;
	char text[256];

	write_file("[user root]\nmemory_limit = 1G\n");
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(find(&config, &(struct subject){.uid = 0}).memory_limit, UINT64_C(1) << 30);
	ck_assert_uint_eq(find(&config, &(struct subject){.uid = 1}).memory_limit, 0);
	unlink(path);
}

TEST(config, sections_are_bounded)
{
	char text[256], *file = calloc(RULES_MAX + 2, 16);
	struct config config;

	for (unsigned i = 0; i < RULES_MAX; i++)
		strcat(file, "[user 7]\n");
	write_file(file);
	config_init(&config);
	ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%s", text);
	unlink(path);
	strcat(file, "[user 7]\n");
	write_file(file);
	config_init(&config);
	ck_assert_int_eq(config_read(&config, path, text, sizeof(text)), CONFIG_E_INVALID);
	ck_assert_ptr_nonnull(strstr(text, ":101: more than 100 sections"));
	unlink(path);
	free(file);
}

TEST(config, a_section_may_be_as_long_as_a_pod_makes_it)
{
	char text[256], file[400], pattern[RULE_PATTERN_MAX + 1] = "/";
	struct config config;

	for (size_t length = RULE_PATTERN_MAX - 1; length <= RULE_PATTERN_MAX; length++) {
		memset(pattern + 1, 'p', length - 1);
		snprintf(file, sizeof(file), "[cgroup %.*s]\nweight = 7\n", (int)length, pattern);
		write_file(file);
		config_init(&config);
		ck_assert_int_eq(
			config_read(&config, path, text, sizeof(text)) == 0, length < RULE_PATTERN_MAX);
		unlink(path);
	}
	ck_assert_ptr_nonnull(strstr(text, ":1: a section of more than 255 bytes"));
}

TEST(config, what_takes_effect_at_the_next_start_is_named)
{
	struct config config, other;
	char text[64];

	config_init(&config);
	config_init(&other);
	other.memory_limit = 5;
	config_differences(&config, &other, text, sizeof(text));
	ck_assert_str_eq(text, "");
	other.standbys = 3;
	strcpy(other.socket, "/x");
	config_differences(&config, &other, text, sizeof(text));
	ck_assert_str_eq(text, "socket, standbys");
	config_differences(&config, &other, text, 8);
	ck_assert_str_eq(text, "socket,");
}

TEST(config, missing_file_is_told_apart)
{
	struct config config;
	char text[256];

	config_init(&config);
	ck_assert_int_eq(
		config_read(&config, "/nonexistent/frmps.conf", text, sizeof(text)), CONFIG_E_MISSING);
	ck_assert_ptr_nonnull(strstr(text, "/nonexistent/frmps.conf"));
}

/* What is in it is not known: defaults would be a guess. */
TEST(config, a_file_that_cannot_be_read_is_an_error)
{
	struct config config;
	char text[256];

	config_init(&config);
	ck_assert_int_eq(config_read(&config, "/tmp", text, sizeof(text)), CONFIG_E_INVALID);
	ck_assert_str_eq(text, "/tmp: Is a directory");
}

/* Nobody writes to the one, and the other has no end. */
TEST(config, what_is_no_file_is_not_waited_for)
{
	struct config config;
	char text[256], pipe[] = "/tmp/frmps-test-XXXXXX";

	close(mkstemp(pipe));
	unlink(pipe);
	ck_assert_int_eq(mkfifo(pipe, 0600), 0);
	config_init(&config);
	alarm(10);
	ck_assert_int_eq(config_read(&config, pipe, text, sizeof(text)), CONFIG_E_INVALID);
	ck_assert_ptr_nonnull(strstr(text, ": neither a regular file nor /dev/null"));
	unlink(pipe);
	ck_assert_int_eq(config_read(&config, "/dev/zero", text, sizeof(text)), CONFIG_E_INVALID);
	ck_assert_str_eq(text, "/dev/zero: neither a regular file nor /dev/null");
	ck_assert_int_eq(config_read(&config, "/dev/null", text, sizeof(text)), 0);
	alarm(0);
}

TEST(config, an_indented_line_is_a_line)
{
	struct config config;
	char text[256];

	write_file("socket = /tmp/x.sock\n  standbys = 3\n\tdevices = 1\n");
	config_init(&config);
	ck_assert_int_eq(config_read(&config, path, text, sizeof(text)), 0);
	ck_assert_str_eq(config.socket, "/tmp/x.sock");
	ck_assert_uint_eq(config.standbys, 3);
	ck_assert_str_eq(config.devices, "1");
	unlink(path);
}

/* A line of that many bytes, with its newline and a terminator, that ends in `end`. */
static void write_long_line(char *line, size_t bytes, char begin, const char *end)
{
	memset(line, ' ', bytes);
	line[0] = begin;
	memcpy(line + bytes - strlen(end), end, strlen(end));
	strcpy(line + bytes, "\n");
}

/* Wherever its end may lie. */
TEST(config, a_comment_of_any_length_sets_nothing)
{
	struct config config;
	char text[256], file[2048];

	for (size_t bytes = 20; bytes < 1000; bytes++) {
		write_long_line(file, bytes, '#', "standbys = 3");
		strcat(file, "devices = 1\n");
		write_file(file);
		config_init(&config);
		ck_assert_msg(!config_read(&config, path, text, sizeof(text)), "%zu: %s", bytes, text);
		ck_assert_uint_eq(config.standbys, 1);
		ck_assert_str_eq(config.devices, "1");
		unlink(path);
	}
}

TEST(config, a_line_that_is_too_long_is_an_error)
{
	struct config config;
	char text[512], place[128], file[2048];

	write_long_line(file, 1000, ' ', "standbys = 3");
	memcpy(file, "socket = ", 9);
	write_file(file);
	config_init(&config);
	ck_assert_int_eq(config_read(&config, path, text, sizeof(text)), CONFIG_E_INVALID);
	snprintf(place, sizeof(place), "%s:1: longer than ", path);
	ck_assert_msg(strncmp(text, place, strlen(place)) == 0, "%s", text);
	ck_assert_uint_eq(config.standbys, 1);
	unlink(path);
}

TEST(config, long_text_is_refused)
{
	struct config config;
	char text[256], value[CONFIG_TEXT_MAX + 1];

	memset(value, 'a', CONFIG_TEXT_MAX);
	value[CONFIG_TEXT_MAX] = '\0';
	config_init(&config);
	ck_assert_int_eq(config_set(&config, "socket", value, text, sizeof(text)), CONFIG_E_INVALID);
	value[CONFIG_TEXT_MAX - 1] = '\0';
	ck_assert_int_eq(config_set(&config, "socket", value, text, sizeof(text)), 0);
}

TEST(config, help_names_every_key_and_can_be_read_back)
{
	struct config config;
	char *help = NULL, text[256];
	size_t length;
	FILE *out = open_memstream(&help, &length);

	config_help(out);
	fclose(out);
#define TEXT(key, initial, meaning)		   ck_assert_ptr_nonnull(strstr(help, "#" #key " ="));
#define CHOICE(key, initial, choices, meaning)	   TEXT(key, initial, meaning)
#define NUMBER(key, initial, least, most, meaning) TEXT(key, initial, meaning)
#define BYTES(key, initial, least, most, meaning)  TEXT(key, initial, meaning)
#define TUNING(key, initial, least, most)	   ck_assert_ptr_null(strstr(help, "#" #key " ="));
#include "server/config/options.def"
	/* Without the marks before keys it is a valid file that says what is the case anyway. */
	for (char *at = help; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (at[0] == '#' && at[1] != ' ')
			at[0] = ' ';
	for (char *at = help; (at = strstr(at, "\n "));)
		at[1] = '\n';
	write_file(help);
	config_init(&config);
	ck_assert_msg(config_read(&config, path, text, sizeof(text)) == 0, "%s", text);
	unlink(path);
	free(help);
}

TEST(config, socket_has_a_default)
{
	struct config config;
	char text[256];

	config_init(&config);
	setenv("FRMPS_SOCKET", "/tmp/env.sock", 1);
	ck_assert_int_eq(config_default_socket(&config, text, sizeof(text)), 0);
	ck_assert_str_eq(config.socket, "/tmp/env.sock");
	config_init(&config);
	strcpy(config.socket, "/tmp/given.sock");
	ck_assert_int_eq(config_default_socket(&config, text, sizeof(text)), 0);
	ck_assert_str_eq(config.socket, "/tmp/given.sock");
}

static const char *find_variable(char **list, const char *name)
{
	size_t length = strlen(name);
	const char *found = NULL;

	for (; *list; list++) {
		if (strncmp(*list, name, length) || (*list)[length] != '=')
			continue;
		ck_assert_msg(!found, "%s is there twice", name);
		found = *list + length + 1;
	}
	return found;
}

TEST(config, children_get_a_clean_environment)
{
	char library_path[256], queues[16];
	char *parent[] = {(char *)"HOME=/root", library_path,
		(char *)"LD_PRELOAD=/x/libcuda.so.1:/x/other.so", (char *)"CUDA_VISIBLE_DEVICES=0,1",
		(char *)"CUDA_DEVICE_MAX_CONNECTIONS=1", (char *)"CUDA_MODULE_LOADING=EAGER",
		(char *)"NOTIFY_SOCKET=/run/n", (char *)"LD_LIBRARY_PATHS=/tmp", NULL};
	char **child;

	snprintf(library_path, sizeof(library_path), "LD_LIBRARY_PATH=/usr/lib:/tmp/../tmp:/usr");
	snprintf(queues, sizeof(queues), "%d", HERITAGE_QUEUES);
	child = heritage_environment(parent, "/tmp", "1");
	ck_assert_str_eq(find_variable(child, "HOME"), "/root");
	ck_assert_str_eq(find_variable(child, "LD_LIBRARY_PATH"), "/usr/lib:/usr");
	ck_assert_str_eq(find_variable(child, "LD_LIBRARY_PATHS"), "/tmp");
	ck_assert_str_eq(find_variable(child, "LD_PRELOAD"), "/x/other.so");
	ck_assert_str_eq(find_variable(child, "CUDA_VISIBLE_DEVICES"), "1");
	ck_assert_str_eq(find_variable(child, "CUDA_DEVICE_MAX_CONNECTIONS"), queues);
	ck_assert_str_eq(find_variable(child, "CUDA_MODULE_LOADING"), "LAZY");
	ck_assert_ptr_null(find_variable(child, "NOTIFY_SOCKET"));
	heritage_environment_free(child);
}

TEST(config, emptied_lists_are_dropped)
{
	char *parent[] = {(char *)"LD_LIBRARY_PATH=/tmp", (char *)"LD_PRELOAD=libcuda.so.1",
		(char *)"CUDA_VISIBLE_DEVICES=3", NULL};
	char **child = heritage_environment(parent, "/tmp", NULL);

	ck_assert_ptr_null(find_variable(child, "LD_LIBRARY_PATH"));
	ck_assert_ptr_null(find_variable(child, "LD_PRELOAD"));
	ck_assert_str_eq(find_variable(child, "CUDA_VISIBLE_DEVICES"), "3");
	heritage_environment_free(child);
}

/* A token of the service's, for example. */
TEST(config, users_see_nothing_of_the_services_environment)
{
	char *variables[] = {(char *)"SECRET=1", (char *)"PATH=/bin", (char *)"PATHS=2", (char *)"FRMPS_X=3",
		(char *)"AWS_KEY=4", (char *)"LD_LIBRARY_PATH=/lib", NULL};

	heritage_leave_for_user(variables);
	ck_assert_str_eq(variables[0], "PATH=/bin");
	ck_assert_str_eq(variables[1], "FRMPS_X=3");
	ck_assert_str_eq(variables[2], "LD_LIBRARY_PATH=/lib");
	ck_assert_ptr_null(variables[3]);
}

static const struct {
	const char *list;
	int device;
	const char *visible;
} devices[] = {{NULL, 2, "2"}, {"", 1, "1"}, {"3,5", 0, "3"}, {"3,5", 1, "5"}, {"3,5", 2, NULL},
	{"GPU-aa,MIG-bb", 1, "MIG-bb"}};

TEST_LOOP(config, device_number_counts_in_the_operators_list, 0, sizeof(devices) / sizeof(devices[0]))
{
	char *visible = heritage_visible_device(devices[_i].list, devices[_i].device);

	ck_assert_pstr_eq(visible, devices[_i].visible);
	free(visible);
}

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tests = suite_case(suite, "config");

	suite_add(tests, "config");
	return suite_run(suite);
}
