"""The controller: joins engine, store and drivers into one running fleet. The faces (api, cli) call it."""
