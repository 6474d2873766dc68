import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: [".venv/", "out/", "results/", "node_modules/"] },
  js.configs.recommended,
  {
    files: ["ropescope/html/assets/**/*.js"],
    languageOptions: { ecmaVersion: 2023, sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "max-lines": ["error", 280],
      "max-lines-per-function": ["error", 70],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-shadow": "error",
      "no-unused-vars": "error",
      "no-use-before-define": ["error", { functions: false }],
      "no-var": "error",
      "prefer-const": "error",
      // Text from runs must never be read as HTML.
      "no-restricted-properties": ["error", ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property }))],
    },
  },
];
