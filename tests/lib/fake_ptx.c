// In the place of the driver's compiler of PTX: a library with the functions that ptx.c opens. A
// text with "wrong" in it is refused. What is compiled becomes its own text, and the remarks are
// the options.

#include <stdlib.h>
#include <string.h>

struct compiler {
	char *text, remarks[1024];
	const char *errors;
};

int nvPTXCompilerCreate(struct compiler **ret, size_t bytes, const char *text);
int nvPTXCompilerCompile(struct compiler *compiler, int count, const char *const *options);
int nvPTXCompilerDestroy(struct compiler **compiler);
int nvPTXCompilerGetCompiledProgramSize(struct compiler *compiler, size_t *ret);
int nvPTXCompilerGetCompiledProgram(struct compiler *compiler, void *ret);
int nvPTXCompilerGetErrorLogSize(struct compiler *compiler, size_t *ret);
int nvPTXCompilerGetErrorLog(struct compiler *compiler, char *ret);
int nvPTXCompilerGetInfoLogSize(struct compiler *compiler, size_t *ret);
int nvPTXCompilerGetInfoLog(struct compiler *compiler, char *ret);

int nvPTXCompilerCreate(struct compiler **ret, size_t bytes, const char *text)
{
	*ret = calloc(1, sizeof(**ret));
	(*ret)->text = strndup(text, bytes);
	(*ret)->errors = "";
	return 0;
}

int nvPTXCompilerCompile(struct compiler *compiler, int count, const char *const *options)
{
	for (int i = 0; i < count; i++) {
		strcat(compiler->remarks, options[i]);
		strcat(compiler->remarks, "\n");
	}
	if (!strstr(compiler->text, "wrong"))
		return 0;
	compiler->errors = "it is wrong";
	return 3;
}

int nvPTXCompilerDestroy(struct compiler **compiler)
{
	free((*compiler)->text);
	free(*compiler);
	*compiler = NULL;
	return 0;
}

int nvPTXCompilerGetCompiledProgramSize(struct compiler *compiler, size_t *ret)
{
	*ret = strlen(compiler->text);
	return 0;
}

int nvPTXCompilerGetCompiledProgram(struct compiler *compiler, void *ret)
{
	memcpy(ret, compiler->text, strlen(compiler->text));
	return 0;
}

int nvPTXCompilerGetErrorLogSize(struct compiler *compiler, size_t *ret)
{
	*ret = strlen(compiler->errors);
	return 0;
}

int nvPTXCompilerGetErrorLog(struct compiler *compiler, char *ret)
{
	memcpy(ret, compiler->errors, strlen(compiler->errors));
	return 0;
}

int nvPTXCompilerGetInfoLogSize(struct compiler *compiler, size_t *ret)
{
	*ret = strlen(compiler->remarks);
	return 0;
}

int nvPTXCompilerGetInfoLog(struct compiler *compiler, char *ret)
{
	memcpy(ret, compiler->remarks, strlen(compiler->remarks));
	return 0;
}
